use super::*;

#[test]
fn dates_are_those_of_the_calendar() {
    let shown = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(shown(0), "1970-01-01 00:00:00 UTC");
    assert_eq!(shown(951_782_399), "2000-02-28 23:59:59 UTC");
    assert_eq!(shown(951_782_400), "2000-02-29 00:00:00 UTC");
    assert_eq!(shown(1_795_320_845), "2026-11-22 04:14:05 UTC");
    assert_eq!(shown(4_107_542_400), "2100-03-01 00:00:00 UTC");
    assert_eq!(shown(16_725_225_600), "2500-01-01 00:00:00 UTC");
    assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01 00:00:00 UTC");
}

#[test]
fn a_holder_is_named() {
    let since = UNIX_EPOCH + Duration::from_secs(1_795_320_845);
    let holder = Holder { pid: 7, program: "vfscale".into(), host: "barn".into(), since };
    let text = holder.to_string();
    assert_eq!(text, "process 7 (vfscale) on barn since 2026-11-22 04:14:05 UTC");
}
