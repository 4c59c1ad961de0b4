"""The additions of ``DelayQ(app)`` to Celery.

    DelayQ(app) --> task                ``delay_until``, ``delay_for`` on tasks and signatures
                --> app.amqp            each message passes ``scheduling.intercept``
                --> bootstep            a scanner in each worker
                --> leaves              their own additions: ``leaves.py``
                --> app.delayq

``delayq`` makes these changes, and has the class, whose ``methods`` are those for tasks that wait.
``apply_async`` schedules a call, and ``results`` has what it returns. ``startup`` ends a process
that cannot start with one sentence.
"""
