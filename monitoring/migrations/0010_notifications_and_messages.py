"""A message of its own row, with one notification or many in it; one row per try; maintenance windows."""

from datetime import datetime

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


def carry_over(apps, editor):
    """Every delivery of old becomes a message with one notification in it, its log one row per try. A channel that was
    there before keeps its address, whatever that is: somebody who could reach the machine's settings made it."""
    Delivery = apps.get_model("monitoring", "Delivery")
    Notification = apps.get_model("monitoring", "Notification")
    DeliveryAttempt = apps.get_model("monitoring", "DeliveryAttempt")
    apps.get_model("monitoring", "Channel").objects.update(allow_private=True)
    for delivery in Delivery.objects.select_related("event").iterator(chunk_size=1000):
        event = delivery.event
        Delivery.objects.filter(pk=delivery.pk).update(created_at=event.at, subject=event.text)
        Notification.objects.create(
            event=event, channel_id=delivery.channel_id, delivery=delivery, reason=event.kind,
            state="gathered", due_at=event.at, text=event.text,
        )
        DeliveryAttempt.objects.bulk_create(attempts(DeliveryAttempt, delivery))
    # What follows alters the tables that were written to.
    editor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    editor.execute("SET CONSTRAINTS ALL DEFERRED")


def attempts(model, delivery):
    ends = {"sent": "sent", "dead": "given_up"}
    for place, entry in enumerate(delivery.log, 1):
        last = ends.get(delivery.state, "again")
        yield model(
            delivery=delivery,
            at=datetime.fromisoformat(entry["at"]),
            answer=entry["answer"],
            outcome=last if place == len(delivery.log) else "again",
        )


class Migration(migrations.Migration):

    dependencies = [
        ('monitoring', '0009_rules_of_every_kind'),
    ]

    operations = [
        migrations.CreateModel(
            name='DeliveryAttempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('outcome', models.CharField(choices=[('sent', 'Sent'), ('again', 'To be tried again'), ('given_up', 'Given up')], max_length=10)),
                ('answer', models.TextField()),
            ],
            options={
                'ordering': ('id',),
            },
        ),
        migrations.CreateModel(
            name='MaintenanceWindow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.TextField()),
                ('labels', models.JSONField(blank=True, default=dict)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(db_index=True)),
                ('created_by', models.CharField(max_length=150)),
                ('ended_by', models.CharField(blank=True, default='', max_length=150)),
            ],
            options={
                'ordering': ('-starts_at', '-id'),
            },
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.CharField(choices=[('opened', 'Opened'), ('resolved', 'Resolved'), ('repeat', 'Still open'), ('escalation', 'Escalated'), ('woken', 'Snooze over')], max_length=10)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('held', 'Hidden'), ('gathered', 'In a message'), ('dropped', 'Not told')], default='waiting', max_length=10)),
                ('due_at', models.DateTimeField()),
                ('why', models.TextField(blank=True, default='')),
                ('text', models.TextField(blank=True, default='')),
            ],
            options={
                'ordering': ('id',),
            },
        ),
        migrations.AddField(
            model_name='channel',
            name='allow_private',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='channel',
            name='body_template',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='channel',
            name='escalate_after_s',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='channel',
            name='escalate_to',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='monitoring.channel'),
        ),
        migrations.AddField(
            model_name='channel',
            name='group_wait_s',
            field=models.PositiveIntegerField(default=10, validators=[django.core.validators.MaxValueValidator(600)]),
        ),
        migrations.AddField(
            model_name='channel',
            name='language',
            field=models.CharField(choices=[('en', 'English'), ('zh-hans', '简体中文')], default='en', max_length=10),
        ),
        migrations.AddField(
            model_name='channel',
            name='messages_per_10_min',
            field=models.PositiveIntegerField(default=10, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)]),
        ),
        migrations.AddField(
            model_name='channel',
            name='repeat_every_s',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='channel',
            name='subject_template',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AddField(
            model_name='delivery',
            name='created_at',
            field=models.DateTimeField(default=django.utils.timezone.now),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='delivery',
            name='is_digest',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='delivery',
            name='is_test',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='delivery',
            name='subject',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AlterField(
            model_name='channel',
            name='kind',
            field=models.CharField(choices=[('mail', 'Mail'), ('webhook', 'Webhook'), ('apprise', 'Chat, paging, push')], max_length=10),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['channel', '-created_at'], name='deliveries_of_a_channel'),
        ),
        migrations.AddField(
            model_name='deliveryattempt',
            name='delivery',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tries', to='monitoring.delivery'),
        ),
        migrations.AddField(
            model_name='maintenancewindow',
            name='cluster',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maintenance', to='monitoring.cluster'),
        ),
        migrations.AddField(
            model_name='maintenancewindow',
            name='job',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='maintenance', to='monitoring.job'),
        ),
        migrations.AddField(
            model_name='notification',
            name='channel',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to='monitoring.channel'),
        ),
        migrations.AddField(
            model_name='notification',
            name='delivery',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to='monitoring.delivery'),
        ),
        migrations.AddField(
            model_name='notification',
            name='event',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to='monitoring.incidentevent'),
        ),
        migrations.AddField(
            model_name='notification',
            name='silenced_by',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='silenced', to='monitoring.maintenancewindow'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['due_at'], name='notifications_that_wait'),
        ),
        migrations.AddConstraint(
            model_name='notification',
            constraint=models.UniqueConstraint(condition=models.Q(('reason', 'repeat'), _negated=True), fields=('event', 'channel', 'reason'), name='a_channel_is_told_of_a_step_once'),
        ),
        migrations.RunPython(carry_over, migrations.RunPython.noop),
        migrations.RemoveConstraint(
            model_name='delivery',
            name='an_event_goes_to_a_channel_once',
        ),
        migrations.RemoveField(
            model_name='delivery',
            name='event',
        ),
        migrations.RemoveField(
            model_name='delivery',
            name='log',
        ),
    ]
