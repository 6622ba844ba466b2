use super::*;

#[test]
fn limits_for_a_size_grow_up_to_the_default() {
    let mut before = Limits::for_size(0);
    for shift in 0..50 {
        let now = Limits::for_size(1 << shift);
        assert!(now.open_files >= before.open_files && now.locks >= before.locks);
        assert!(now.socket_bytes >= before.socket_bytes && now.pipe_pages >= before.pipe_pages);
        assert!(now.pipe_pages > now.pipe_pages_soft);
        before = now;
    }
    assert_eq!(before, Limits::default());
    // A hard limit below the soft one is raised to it.
    assert_eq!(Limits::default().pipe_pages(10, 5), Limits::default().pipe_pages(10, 10));
    assert_eq!(Limits::default().descriptors(usize::MAX).descriptors_max(), OPEN_MAX);
}

#[test]
fn pages_of_pipes_go_back_to_where_they_came_from() {
    let quotas = Quotas::new(Limits::default().pipe_pages(20, 22), 2);
    let left = || (quotas.pipe_pages.available(), quotas.pipe_pages_single.available());
    let mut full = PipePages::take(&quotas, 16).unwrap();
    let mut singles: Vec<_> = (0..6).map(|_| PipePages::take(&quotas, 16).unwrap()).collect();
    assert_eq!(PipePages::take(&quotas, 16).err(), Some(Errno::NFILE));
    assert_eq!((left(), full.len(), singles[0].len()), ((0, 0), 16, 1));
    // A pipe with a single page grows with shared ones.
    full.resize(&quotas, 8).unwrap();
    singles[0].resize(&quotas, 5).unwrap();
    assert_eq!((left(), singles[0].len()), ((4, 0), 5));
    assert_eq!(singles[0].resize(&quotas, 10), Err(Errno::PERM));
    assert_eq!(singles[0].len(), 5);
    singles[0].resize(&quotas, 1).unwrap();
    assert_eq!((left().0 + left().1, singles[0].len()), (8, 1));
    full.give(&quotas);
    singles.iter_mut().for_each(|pages| pages.give(&quotas));
    assert_eq!((left(), full.len()), ((20, 2), 0));
}
