// Store the time zone of the browser in a cookie. The server uses it for accounts without a time zone.
// The page was rendered without the cookie or with an older one: load it once more, so that all its times have one zone.
{
  const cookie = `zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  const stored = () => document.cookie.split("; ").includes(cookie);
  if (!stored()) {
    document.cookie = `${cookie}; path=/; max-age=31536000; samesite=lax`;
    const shown = "sent" in document.body.dataset ? null : document.documentElement.dataset.zone;
    if (shown && `zone=${shown}` !== cookie && stored()) location.reload();
  }
}
