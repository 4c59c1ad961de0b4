"""Second copies: a worker drops a relayed task of which another copy has been at a worker before.

    a worker's consumer --> GuardingStep --> each message is looked at before its task is

It drops them where ``delayq_once`` says so. What the store keeps of copies is in ``store.copies``.
"""
