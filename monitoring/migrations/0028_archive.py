"""Where archived history lies, and what changes in a partition while it is archived."""

import django.contrib.postgres.fields
from django.db import migrations, models


# On a partition that is being archived: whatever changes in it from then on is noted, so that nothing of it is lost.
TOUCHED = """
CREATE FUNCTION monitoring_partition_touched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO monitoring_partitiontouch (partition, moment)
        VALUES (TG_TABLE_NAME, (to_jsonb(OLD) ->> TG_ARGV[0])::timestamptz);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO monitoring_partitiontouch (partition, moment)
        VALUES (TG_TABLE_NAME, (to_jsonb(NEW) ->> TG_ARGV[0])::timestamptz);
    END IF;
    RETURN NULL;
END $$;
"""
NOT_TOUCHED = "DROP FUNCTION monitoring_partition_touched() CASCADE"


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0027_restart_budget'),
    ]

    operations = [
        migrations.CreateModel(
            name='ArchivedFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('checkpoints', 'checkpoints'), ('operators', 'operators of checkpoints'), ('samples', 'counter samples')], max_length=12)),
                ('cluster_id', models.BigIntegerField()),
                ('day', models.DateField()),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('path', models.CharField(max_length=300, unique=True)),
                ('rows', models.BigIntegerField()),
                ('size', models.BigIntegerField()),
                ('sha256', models.CharField(max_length=64)),
                ('footer_sha256', models.CharField(max_length=64)),
                ('least_id', models.BigIntegerField()),
                ('greatest_id', models.BigIntegerField()),
                ('runs', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                ('rows_by_run', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, size=None)),
                ('state', models.CharField(choices=[('written', 'written and verified; its rows are still in PostgreSQL'), ('live', 'read from here; its rows are in PostgreSQL no more'), ('going', 'replaced, or of rows that changed; it is being removed'), ('expired', 'older than the archive is kept; it is being removed'), ('removed', 'older than the archive is kept, and removed')], default='written', max_length=8)),
                ('problem', models.TextField(blank=True, default='')),
                ('made_at', models.DateTimeField(auto_now_add=True)),
                ('checked_at', models.DateTimeField(null=True)),
            ],
            options={
                'ordering': ('day', 'cluster_id', 'since'),
                'indexes': [models.Index(fields=['kind', 'cluster_id', 'day'], name='archive_by_cluster_and_day'), models.Index(fields=['kind', 'least_id', 'greatest_id'], name='archive_by_id')],
            },
        ),
        migrations.CreateModel(
            name='PartitionTouch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('partition', models.CharField(max_length=63)),
                ('moment', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['partition'], name='touches_by_partition')],
            },
        ),
        migrations.RunSQL(TOUCHED, NOT_TOUCHED),
    ]
