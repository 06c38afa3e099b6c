"""What the pipeline has not come to yet is counted by job, within the index.

On a large history it takes as long as any index of it (ten million checkpoints: seconds), and polls wait meanwhile.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("monitoring", "0033_what_a_call_was_about_to_ask"),)

    operations = (
        migrations.AddIndex(
            "checkpoint", models.Index(fields=["changed_in", "run"], name="checkpoints_by_change_and_run")
        ),
        migrations.RemoveIndex("checkpoint", "checkpoints_by_change"),
    )
