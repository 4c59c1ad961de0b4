"""Takes care of a store: diagnoses it, checks and repairs it, and moves it.

doctor, access             whether it can work as it should
check                      finds and repairs what a crash or another program left
dump --> lines --> load    moves it to another Redis or release
migration                  moves it to another number of shards, or to a newer format
commands                   the commands for all of that
"""
