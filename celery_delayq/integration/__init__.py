"""What ``DelayQ(app)`` adds to Celery.

    DelayQ(app) --> setup --> app.amqp  each message passes ``scheduling.intercept``
                          --> bootstep  a scanner in each worker
                          --> task      ``delay_until``, ``delay_for`` on tasks and signatures
                          --> leaves    what each of them adds: ``leaves.py``
                --> app.delayq

``calls`` and ``results`` give back what can be cancelled and rescheduled.
"""
