from django.db import migrations, models


class Migration(migrations.Migration):
    """Beside the state size the p95 of durations, alignment and start delay is kept; what there is stays."""

    dependencies = [("monitoring", "0030_which_hours_are_kept")]

    operations = [
        migrations.RenameModel("SizeBaseline", "FigureBaseline"),
        migrations.RemoveConstraint("figurebaseline", "one_baseline_per_job_day_and_length"),
        migrations.AlterField(
            "figurebaseline",
            "job",
            models.ForeignKey(on_delete=models.deletion.CASCADE, related_name="figure_baselines", to="monitoring.job"),
        ),
        migrations.AddField("figurebaseline", "figure", models.CharField(default="state_size", max_length=30)),
        migrations.AddConstraint(
            "figurebaseline",
            models.UniqueConstraint(
                fields=("day", "days", "figure", "job"), name="one_baseline_per_figure_job_day_and_length"
            ),
        ),
    ]
