"""One Celery message: taken from Celery, cut into template and rest, routed, decoded.

Together with the hand-over, the only room that knows kombu's insides.
"""
