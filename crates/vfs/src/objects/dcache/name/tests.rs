//! Compares each function with the plain algorithm, for every length and every offset.

use std::collections::HashSet;

use vfscale_sync::random::{HashKeys, Random};

use super::{Name, TIE_BITS, component_len, has_nul, hash_with, is_same, skip_slashes, word};

/// Returns bytes of which none is a slash or zero, some with the high bit.
fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| [0x2e, 0x30, 0x01, 0xff, 0xaf, 0x80, b'a'][i % 7]).collect()
}

#[test]
fn words_of_every_length() {
    for len in 0..=8 {
        let bytes = text(len);
        let expected = bytes.iter().rev().fold(0, |w, &b| (w << 8) | u64::from(b));
        assert_eq!(word(&bytes), expected, "{len}");
    }
}

#[test]
fn the_first_slash_ends_a_component() {
    for len in 0..40 {
        let plain = text(len);
        assert_eq!(component_len(&plain), len);
        assert!(!has_nul(&plain));
        for at in 0..len {
            let mut bytes = plain.clone();
            bytes[at] = b'/';
            assert_eq!(component_len(&bytes), at, "{len}");
            for also in at..len {
                bytes[also] = b'/';
                assert_eq!(component_len(&bytes), at, "{len}");
            }
            bytes = plain.clone();
            bytes[at] = 0;
            assert_eq!(component_len(&bytes), len, "a zero is no slash");
            assert!(has_nul(&bytes), "{at} of {len}");
        }
    }
}

#[test]
fn slashes_in_front_are_skipped() {
    assert_eq!(skip_slashes(b"///a//"), b"a//");
    assert_eq!(skip_slashes(b"//"), b"");
    assert_eq!(skip_slashes(b""), b"");
}

#[test]
fn names_differ_by_any_byte_or_by_length() {
    for len in 0..40 {
        let a = text(len);
        assert!(is_same(&a, &a.clone()));
        for at in 0..len {
            let mut b = a.clone();
            b[at] ^= 0x40;
            assert!(!is_same(&a, &b), "{at} of {len}");
        }
        assert!(!is_same(&a, &text(len + 1)));
    }
}

/// Returns a name in the form that a dentry stores.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let mut stored = vec![bytes.len() as u8];
    stored.extend_from_slice(bytes);
    stored.resize(super::stored_len(bytes.len()), 0);
    stored
}

fn is_stored(name: &Name<'_>, stored: &[u8]) -> bool {
    let head = u64::from_le_bytes(*stored.first_chunk().unwrap());
    name.is_stored(head, || &stored[1..=usize::from(stored[0])])
}

#[test]
fn a_component_is_split_off_with_its_hash() {
    for len in 1..40 {
        for behind in 0..12 {
            let bytes = text(len);
            let mut path = bytes.clone();
            path.extend((0..behind).map(|i| if i % 2 == 0 { b'/' } else { b'x' }));
            let mut name = Name::EMPTY;
            let after = name.split_off(&path);
            assert_eq!((name.bytes(), after), (&path[..len], &path[len..]));
            assert_eq!(name, Name::new(&bytes));
        }
    }
}

#[test]
fn stored_names_are_recognised() {
    for len in 1..40 {
        let name = text(len);
        for other in 1..40 {
            let kept = stored(&text(other));
            assert_eq!(is_stored(&Name::new(&name), &kept), len == other);
        }
        for at in 0..len {
            let mut other = name.clone();
            other[at] ^= 0x40;
            assert!(!is_stored(&Name::new(&name), &stored(&other)), "{at} of {len}");
        }
    }
    // The length of a name that exceeds the maximum has the same low byte.
    assert!(!is_stored(&Name::new(&vec![b'a'; 256 + 3]), &stored(b"aaa")));
}

#[test]
fn dots_are_told_from_other_names() {
    assert!(Name::new(b".").is_dots() && Name::new(b"..").is_dots());
    for other in [&b"..."[..], b"a", b".a", b"a.", b"..a", b"..\0", &[b'.'; 257], &[b'.'; 258]] {
        assert!(!Name::new(other).is_dots(), "{other:?}");
    }
}

fn hashed(keys: &HashKeys, bytes: &[u8]) -> u64 {
    hash_with(keys, Name::new(bytes).head, bytes)
}

fn keyed(seed: u64, bytes: &[u8]) -> u64 {
    hashed(&HashKeys::from_seed(seed), bytes)
}

/// Each of the four secret numbers changes the hashes of all names, short and long: none can be
/// found without the others.
#[test]
fn hashes_depend_on_every_key() {
    let keys = HashKeys {
        salts: [0x1234, 0x5678],
        factors: [0x9abc_def1_0203_0405, 0x0fed_cba9_8765_4321],
    };
    let mut others = [keys; 4];
    others[0].salts[0] ^= 1 << 40;
    others[1].salts[1] ^= 1 << 40;
    others[2].factors[0] ^= 1 << 40;
    others[3].factors[1] ^= 1 << 40;
    for name in [&b"a"[..], b"abc", b"sevenby", b"eightbyt", b"longer than two words", &[b'x'; 255]]
    {
        for other in &others {
            assert_ne!(hashed(&keys, name), hashed(other, name), "{name:?}");
        }
    }
}

/// With multipliers at random, as a process has them, hashes spread as well as with chosen ones.
#[test]
fn hashes_spread_with_keys_at_random() {
    let names: Vec<String> = (0..20_000).map(|i| format!("file{i}")).collect();
    let mut random = Random::new(11);
    for _ in 0..20 {
        let mut two = || [random.number(), random.number()];
        let keys = HashKeys { salts: two(), factors: two().map(|factor| factor | 1) };
        let hashes: HashSet<u64> =
            names.iter().map(|name| hashed(&keys, name.as_bytes())).collect();
        assert!(hashes.len() > names.len() - 3);
        let mut buckets = [0_usize; 64];
        hashes.iter().for_each(|hash| buckets[(hash >> 57) as usize] += 1);
        let mean = names.len() / buckets.len();
        assert!(buckets.iter().all(|n| n.abs_diff(mean) < mean / 2), "{keys:?}: {buckets:?}");
    }
}

#[test]
fn hashes_are_keyed_spread_and_above_the_dots() {
    let names: Vec<String> = (0..100_000).map(|i| format!("file{i}")).collect();
    let hashes: HashSet<u64> = names.iter().map(|name| keyed(1, name.as_bytes())).collect();
    // 2^43 values: the chance of even one collision is about one in two thousand.
    assert!(hashes.len() > names.len() - 3);
    let mut buckets = [0_usize; 64];
    for hash in &hashes {
        assert!(*hash > TIE_BITS && *hash < 1 << 63 && hash & TIE_BITS == 0);
        buckets[(hash >> 57) as usize] += 1;
    }
    let mean = names.len() / buckets.len();
    assert!(buckets.iter().all(|n| n.abs_diff(mean) < mean / 5), "{buckets:?}");
    assert_ne!(keyed(1, b"a"), keyed(2, b"a"));
    assert_ne!(keyed(1, b"a"), keyed(1, b"a\0"));
}
