"""What ``DelayQ(app)`` adds to Celery.

    DelayQ(app) --> setup --> app.amqp  each message passes ``scheduling.intercept``
                          --> control   ``revoke`` reaches what waits
                          --> bootstep  a scanner in each worker
                          --> task      ``delay_until``, ``delay_for`` on tasks and signatures
                          --> putoff    ``raise self.defer(...)`` in a running task
                --> app.delayq

``calls`` and ``results`` give back what can be cancelled and rescheduled.
"""
