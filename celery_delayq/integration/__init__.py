"""What ``DelayQ(app)`` adds to Celery.

    DelayQ(app) --> task                ``delay_until``, ``delay_for`` on tasks and signatures
                --> setup --> app.amqp  each message passes ``scheduling.intercept``
                          --> bootstep  a scanner in each worker
                          --> leaves    what each of them adds: ``leaves.py``
                --> app.delayq

``apply_async`` and ``results`` give back what can be cancelled and rescheduled.
"""
