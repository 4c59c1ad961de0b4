"""The way to a Redis, and what it says of itself; nothing here knows what is kept there.

    Server: an Endpoint, or a leaf's group           where it is, and who may come in
            |
    Pool ---> Connection                             one command at a time, and its refusals
            |
    facts ---> risks; alone                          what it is, and what that may cost

Each is imported from its own file.
"""
