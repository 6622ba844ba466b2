use proptest::prelude::*;

use super::*;
use crate::MemoryDevice;

const BYTES: usize = 64;

proptest! {
    #[test]
    fn a_layer_is_the_last_put_everywhere(
        puts in prop::collection::vec((0..BYTES, 0..BYTES, 1..250_u8, any::<bool>()), 0..20),
        from in 0..BYTES,
        to in 0..BYTES,
    ) {
        let (mut layer, mut model) = (Layer::default(), [0; BYTES]);
        for (start, end, byte, fill) in puts {
            // Bytes count up, which exposes a wrong offset.
            let bytes: Vec<u8> = (0..BYTES as u8).map(|i| byte ^ i).collect();
            if start < end {
                for (i, cell) in model[start..end].iter_mut().enumerate() {
                    *cell = if fill { byte } else { bytes[i] };
                }
            }
            let data = if fill { ExtentData::Fill(byte) } else { ExtentData::Bytes(bytes.into(), 0) };
            layer.put(start as u64, end as u64, data);
        }
        let (from, to) = (from.min(to), from.max(to));
        let mut buf = vec![0; to - from];
        layer.copy_to(from as u64, &mut buf);
        prop_assert_eq!(&buf, &model[from..to]);
        let ends: Vec<_> = layer.extents.iter().map(|(start, (end, _))| (*start, *end)).collect();
        prop_assert!(ends.iter().all(|(start, end)| start < end));
        prop_assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:?}", ends);
    }
}

#[test]
fn the_base_stays_as_it_is() {
    let base = Arc::new(MemoryDevice::new(8192).unwrap());
    base.write_at(0, &[1; 4096]).unwrap();
    let copy = CowDevice::new(base.clone());
    copy.write_at(512, &[2; 512]).unwrap();
    copy.discard(1024, 512).unwrap();
    copy.set_size(16384).unwrap();
    copy.write_at(15872, &[3; 512]).unwrap();
    let mut buf = vec![9; 16384];
    copy.read_at(0, &mut buf).unwrap();
    let parts = [(1, 512), (2, 512), (DISCARDED, 512), (1, 2560), (0, 11776), (3, 512)];
    let expected: Vec<u8> = parts.iter().flat_map(|(byte, n)| vec![*byte; *n]).collect();
    assert_eq!(buf, expected);
    let mut buf = [9; 4096];
    base.read_at(0, &mut buf).unwrap();
    assert_eq!(buf, [1; 4096]);
    assert_eq!(base.size(), 8192);
}
