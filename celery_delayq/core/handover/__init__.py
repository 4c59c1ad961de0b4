"""Delivers due tasks to their queues.

    Scanner ---> ScannerSteps.hand_over -------------------> lists of the store's own Redis
       |         one script: exactly once
       |
       +-------> Outbox: stores REVOKED if a canceller could not
       |
       +-------> Relay: claim -> Link -> publisher --> any other broker
                 ack, or nack with a verdict: at least once

The scanner is the loop; it uses neither Redis nor Celery nor kombu itself. The relay's link is its
connection to the broker; publishers send a window of messages, each in its own way. Contact is what
a scanner does while a server does not answer.
"""
