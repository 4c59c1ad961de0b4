"""The additions of ``DelayQ(app)`` to Celery.

    DelayQ(app) --> task                ``delay_until``, ``delay_for`` on tasks and signatures
                --> setup --> app.amqp  each message passes ``scheduling.intercept``
                          --> bootstep  a scanner in each worker
                          --> leaves    their own additions: ``leaves.py``
                --> app.delayq

``apply_async`` and ``results`` return results that you can cancel and reschedule.
"""
