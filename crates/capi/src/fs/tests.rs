use super::*;

/// Returns the default options.
fn defaults<T: crate::args::Plain>() -> T {
    // SAFETY: a null pointer is allowed: the default of each.
    let options = unsafe { crate::args::options(std::ptr::null(), 0) };
    let Ok(options) = options else { panic!("the default options are valid") };
    options
}

fn options(flags: u32) -> vfscale_volume_options {
    vfscale_volume_options { flags, ..defaults() }
}

/// Returns the options of a volume as text, or none if they are refused.
fn applied(options: &vfscale_volume_options) -> Option<String> {
    with(options, "")
}

/// Returns the options with others as text, as [`applied`].
fn with(options: &vfscale_volume_options, text: &str) -> Option<String> {
    let builder = vfscale::volume("image");
    let builder = apply(builder, options, Options::default(), Some(text)).ok()?;
    Some(format!("{builder:?}"))
}

#[test]
fn flags_and_numbers_reach_the_builder() {
    let has =
        |flags, text: &str| applied(&options(flags)).is_some_and(|builder| builder.contains(text));
    assert!(has(0, "discard: None"));
    assert!(has(0, "cache_budget: None"));
    assert!(has(VFSCALE_VOLUME_DISCARD, "discard: Some(true)"));
    assert!(has(VFSCALE_VOLUME_NO_DISCARD, "discard: Some(false)"));
    assert!(has(0, "take_over: false") && has(0, "patience: None"));
    assert!(has(VFSCALE_VOLUME_TAKE_OVER, "take_over: true"));
    let patient = applied(&vfscale_volume_options { patience_s: 7, ..options(0) });
    assert!(patient.is_some_and(|builder| builder.contains("patience: Some(7s)")));
}

#[test]
fn what_contradicts_itself_is_refused() {
    assert!(applied(&options(VFSCALE_VOLUME_DISCARD | VFSCALE_VOLUME_NO_DISCARD)).is_none());
    assert!(applied(&vfscale_volume_options { reserved: 1, ..options(0) }).is_none());
    assert!(applied(&options(1 << 31)).is_none());
    let cache_budget = std::ptr::without_provenance_mut(0x1000);
    assert!(applied(&vfscale_volume_options { cache_budget, ..options(0) }).is_none());
}

#[test]
fn a_text_wins_over_the_fields() {
    let volume = vfscale_volume_options { patience_s: 7, ..options(VFSCALE_VOLUME_DISCARD) };
    let both = with(&volume, "nodiscard,patience=9,norecovery").unwrap();
    for text in ["discard: Some(false)", "patience: Some(9s)", "no_recovery: true"] {
        assert!(both.contains(text), "{text}: {both}");
    }
    assert!(with(&volume, "inodes=3").is_none());
    assert!(with(&volume, "colour=red").is_none());
    let memory = vfscale_memory_options { inodes: 3, ..defaults() };
    let options = memory_options(&memory, Some("size=1M")).ok().unwrap();
    assert_eq!((options.inodes, options.size), (Some(3), Some(Size::Bytes(1 << 20))));
    assert!(memory_options(&memory, Some("size=0")).is_err());
}
