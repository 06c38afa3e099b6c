"""Add sources that find clusters, what they have found, and savepoints of the Flink operator."""

import django.db.models.deletion
import monitoring.models.secret_field
import monitoring.reasons.columns
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0015_savepoints_of_watched_queries'),
    ]

    operations = [
        migrations.CreateModel(
            name='DiscoverySource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=100, unique=True)),
                ('kind', models.CharField(choices=[('kubernetes', 'Kubernetes')], default='kubernetes', max_length=20)),
                ('in_cluster', models.BooleanField(default=False)),
                ('kubeconfig', monitoring.models.secret_field.SecretField()),
                ('namespaces', models.CharField(blank=True, default='', max_length=1500)),
                ('label_selector', models.CharField(blank=True, default='', max_length=500)),
                ('address_pattern', models.CharField(default='http://{name}-rest.{namespace}:8081', max_length=300)),
                ('enabled', models.BooleanField(default=True)),
                ('next_look_at', models.DateTimeField(db_index=True, null=True)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('claimed_by', models.CharField(blank=True, default='', max_length=32)),
                ('last_answer_at', models.DateTimeField(null=True)),
                ('last_error', models.TextField(blank=True, default='')),
                ('last_error_value', monitoring.reasons.columns.ReasonField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ('name',),
            },
        ),
        migrations.AddField(
            model_name='cluster',
            name='disabled_reason_value',
            field=monitoring.reasons.columns.ReasonField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='savepoint',
            name='origin',
            field=models.CharField(choices=[('scheduled', 'schedule'), ('manual', 'manual'), ('restart', 'before a restart'), ('final', 'at the end of a run'), ('adopted', 'taken elsewhere'), ('operator', 'Flink operator')], max_length=10),
        ),
        migrations.CreateModel(
            name='FoundResource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=100)),
                ('namespace', models.CharField(max_length=63)),
                ('name', models.CharField(max_length=253)),
                ('uid', models.CharField(blank=True, default='', max_length=64)),
                ('version', models.CharField(blank=True, default='', max_length=200)),
                ('labels', models.JSONField(default=dict)),
                ('rest_url', models.CharField(blank=True, default='', max_length=500)),
                ('deployment', models.CharField(blank=True, default='', max_length=253)),
                ('state', models.JSONField(default=dict)),
                ('problem', models.TextField(blank=True, default='')),
                ('problem_value', monitoring.reasons.columns.ReasonField(blank=True, null=True)),
                ('given', models.JSONField(default=dict)),
                ('found_at', models.DateTimeField()),
                ('changed_at', models.DateTimeField()),
                ('gone_at', models.DateTimeField(null=True)),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='found_resources', to='monitoring.cluster')),
                ('source', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='found_resources', to='monitoring.discoverysource')),
            ],
            options={
                'ordering': ('namespace', 'name'),
                'indexes': [models.Index(fields=['source', 'namespace', 'deployment'], name='found_for_a_deployment')],
                'constraints': [models.UniqueConstraint(fields=('source', 'kind', 'namespace', 'name'), name='one_row_per_found_resource')],
            },
        ),
        migrations.CreateModel(
            name='WatchedKind',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=100)),
                ('namespace', models.CharField(blank=True, default='', max_length=63)),
                ('version', models.CharField(blank=True, default='', max_length=200)),
                ('listed_at', models.DateTimeField(null=True)),
                ('problem', models.TextField(blank=True, default='')),
                ('problem_value', monitoring.reasons.columns.ReasonField(blank=True, null=True)),
                ('source', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='watched_kinds', to='monitoring.discoverysource')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('source', 'kind', 'namespace'), name='one_progress_per_watched_kind')],
            },
        ),
    ]
