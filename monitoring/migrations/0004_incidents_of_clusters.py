"""Incidents may be about a cluster, hide those of its jobs, and be snoozed; changes in a row are one event."""

import django.db.models.deletion
from django.db import migrations, models


def name_clusters(apps, _editor):
    job = apps.get_model("monitoring", "Job").objects.filter(pk=models.OuterRef("job_id"))
    apps.get_model("monitoring", "Incident").objects.update(cluster_id=models.Subquery(job.values("cluster_id")[:1]))


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0003_secrets_at_rest'),
    ]

    operations = [
        migrations.AddField(
            model_name='incident',
            name='cluster',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='monitoring.cluster'),
        ),
        migrations.AddField(
            model_name='incident',
            name='inhibited_by',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='inhibited', to='monitoring.incident'),
        ),
        migrations.AddField(
            model_name='incident',
            name='snoozed_until',
            field=models.DateTimeField(db_index=True, null=True),
        ),
        migrations.AddField(
            model_name='incidentevent',
            name='first_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='incidentevent',
            name='times',
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AlterField(
            model_name='incident',
            name='job',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='incidents', to='monitoring.job'),
        ),
        migrations.AlterField(
            model_name='incident',
            name='kind',
            field=models.CharField(choices=[('failed_in_window', 'failed checkpoints within a window'), ('not_restarted', 'a dead job that is not restarted'), ('cluster_unreachable', 'a cluster that does not answer')], default='failed_in_window', max_length=30),
        ),
        migrations.AlterField(
            model_name='incident',
            name='state',
            field=models.CharField(choices=[('open', 'Open'), ('acknowledged', 'Acknowledged'), ('snoozed', 'Snoozed'), ('resolved', 'Resolved')], default='open', max_length=12),
        ),
        migrations.AlterField(
            model_name='incidentevent',
            name='kind',
            field=models.CharField(choices=[('opened', 'Opened'), ('changed', 'Changed'), ('acknowledged', 'Acknowledged'), ('snoozed', 'Snoozed'), ('woken', 'Snooze over'), ('inhibited', 'Hidden'), ('released', 'Hidden no more'), ('resolved', 'Resolved')], max_length=12),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('state', 'resolved'), _negated=True), fields=['cluster'], name='unresolved_by_cluster'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.UniqueConstraint(condition=models.Q(('job', None), models.Q(('state', 'resolved'), _negated=True)), fields=('kind', 'rule', 'cluster'), name='one_unresolved_incident_per_rule_and_cluster', nulls_distinct=False),
        ),
        migrations.RunPython(name_clusters, migrations.RunPython.noop),
    ]
