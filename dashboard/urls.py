from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, URLResolver, path

from dashboard.views import (
    charts,
    checkpoints,
    configuration,
    fleet,
    frame,
    health,
    incidents,
    job,
    lists,
    mail,
    restarts,
    rules,
    savepoints,
    session,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("login/", session.Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("", fleet.fleet, name="fleet"),
    path("nav/", frame.nav, name="nav"),
    path("jobs/<int:pk>/", job.show_overview, name="job"),
    path("jobs/<int:pk>/header/", job.header, name="job-header"),
    path("jobs/<int:pk>/summary/", job.summary, name="job-summary"),
    path("jobs/<int:pk>/history/", checkpoints.history, name="job-history"),
    path("jobs/<int:pk>/history/news/", checkpoints.news, name="job-history-news"),
    path("jobs/<int:pk>/charts/<slug:name>.json", charts.chart, name="job-chart"),
    path("jobs/<int:pk>/configuration/", configuration.configuration, name="job-configuration"),
    path("jobs/<int:pk>/automation/", configuration.change_automation, name="job-automation"),
    path("jobs/<int:pk>/savepoints/", savepoints.job_savepoints, name="job-savepoints"),
    path("jobs/<int:pk>/savepoints/take/", savepoints.take_savepoint, name="job-savepoint"),
    path("jobs/<int:pk>/stop/", savepoints.confirm_stop, name="job-stop"),
    path("jobs/<int:pk>/alerts/", rules.alerts, name="job-alerts"),
    path("jobs/<int:pk>/rule/", rules.change_rule, name="job-rule"),
    path("jobs/<int:pk>/restarts/", restarts.restarts, name="job-restarts"),
    path("jobs/<int:pk>/restart/", restarts.restart, name="job-restart"),
    path("jobs/<int:pk>/exceptions/", job.exceptions, name="job-exceptions"),
    path("restarts/<int:pk>/", restarts.progress, name="restart-progress"),
    path("restarts/<int:pk>/cancel/", restarts.cancel_restart, name="restart-cancel"),
    path("checkpoints/<int:pk>/", checkpoints.checkpoint, name="checkpoint"),
    path("operators/<int:pk>/", checkpoints.operator, name="operator"),
    path("incidents/", incidents.incidents, name="incidents"),
    path("incidents/<int:pk>/", incidents.incident, name="incident"),
    path("incidents/<int:pk>/acknowledge/", incidents.acknowledge, name="incident-acknowledge"),
    path("incidents/<int:pk>/resolve/", incidents.resolve, name="incident-resolve"),
    path("savepoints/", savepoints.all_savepoints, name="savepoints"),
    path("clusters/", lists.clusters, name="clusters"),
    path("mail/", mail.mails, name="mails"),
    path("mail/<slug:mail_id>/", mail.mail, name="mail"),
    path("audit/", lists.audit, name="audit"),
]

handler403 = "dashboard.views.session.forbidden"
handler404 = "dashboard.views.session.not_found"
handler500 = "dashboard.views.session.broken"
