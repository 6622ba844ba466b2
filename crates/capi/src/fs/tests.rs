use super::*;

fn options(flags: u32, dir_heat: u32) -> vfscale_volume_options {
    // SAFETY: a null pointer is allowed: the default of each.
    let options = unsafe { crate::args::options(std::ptr::null(), 0) };
    let Ok(options) = options else { panic!("the default options are valid") };
    vfscale_volume_options { flags, dir_heat, ..options }
}

/// Returns the options of a volume as text, or none if they are refused.
fn applied(options: &vfscale_volume_options) -> Option<String> {
    let builder = apply(vfscale::volume("image"), options).ok()?;
    Some(format!("{builder:?}"))
}

#[test]
fn flags_and_numbers_reach_the_builder() {
    let has = |flags, waits, text: &str| {
        applied(&options(flags, waits)).is_some_and(|builder| builder.contains(text))
    };
    assert!(has(0, 0, "discard: None") && has(0, 0, "dir_heat: 12"));
    assert!(has(0, 0, "cache_budget: None"));
    assert!(has(VFSCALE_VOLUME_DISCARD, 0, "discard: Some(true)"));
    assert!(has(VFSCALE_VOLUME_NO_DISCARD, 0, "discard: Some(false)"));
    assert!(has(0, 7, "dir_heat: 7,"));
    assert!(has(0, u32::MAX, "dir_heat: 4294967295"));
    assert!(has(VFSCALE_VOLUME_NO_DIR_HEAT, 0, "dir_heat: 0,"));
    assert!(has(0, 0, "take_over: false") && has(0, 0, "patience: None"));
    assert!(has(VFSCALE_VOLUME_TAKE_OVER, 0, "take_over: true"));
    let patient = applied(&vfscale_volume_options { patience_s: 7, ..options(0, 0) });
    assert!(patient.is_some_and(|builder| builder.contains("patience: Some(7s)")));
}

#[test]
fn what_contradicts_itself_is_refused() {
    assert!(applied(&options(VFSCALE_VOLUME_DISCARD | VFSCALE_VOLUME_NO_DISCARD, 0)).is_none());
    assert!(applied(&options(VFSCALE_VOLUME_NO_DIR_HEAT, 1)).is_none());
    assert!(applied(&options(1 << 31, 0)).is_none());
    let cache_budget = std::ptr::without_provenance_mut(0x1000);
    assert!(applied(&vfscale_volume_options { cache_budget, ..options(0, 0) }).is_none());
}
