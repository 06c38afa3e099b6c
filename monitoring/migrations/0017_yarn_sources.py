"""Add sources of YARN: addresses, credentials, and what they select. Queues may have long names."""

import monitoring.models.secret_field
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0016_found_clusters'),
    ]

    operations = [
        migrations.AddField(
            model_name='discoverysource',
            name='addresses',
            field=models.CharField(blank=True, default='', max_length=1500),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='application_tags',
            field=models.CharField(blank=True, default='', max_length=1500),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='authentication',
            field=models.CharField(choices=[('none', 'none'), ('bearer', 'bearer token'), ('basic', 'user name and password')], default='none', max_length=10),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='ca_bundle',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='password',
            field=monitoring.models.secret_field.SecretField(),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='queues',
            field=models.CharField(blank=True, default='', max_length=1500),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='token',
            field=monitoring.models.secret_field.SecretField(),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='username',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='discoverysource',
            name='users',
            field=models.CharField(blank=True, default='', max_length=1500),
        ),
        migrations.AlterField(
            model_name='discoverysource',
            name='kind',
            field=models.CharField(choices=[('kubernetes', 'Kubernetes'), ('yarn', 'YARN')], default='kubernetes', max_length=20),
        ),
        migrations.AlterField(
            model_name='foundresource',
            name='namespace',
            field=models.CharField(max_length=253),
        ),
    ]
