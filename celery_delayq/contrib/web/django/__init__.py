"""The pages in a Django project, behind its login and its permissions.

    INSTALLED_APPS  "celery_delayq.contrib.web.django"     permissions; a link in the admin
    urls.py         path("delayq/", include("celery_delayq.contrib.web.django.urls"))

A user needs the permission ``delayq.view_scheduledtask`` to look, and that to change tasks,
``delayq.change_scheduledtask``, to change them. Others are sent to the login, or get a 403. There
is no table and no migration.

Settings of Django that apply: ``ALLOWED_HOSTS``, ``LOGIN_URL``, ``CSRF_TRUSTED_ORIGINS``; and
``DELAYQ_HIDE_ARGUMENTS = True``.
"""
