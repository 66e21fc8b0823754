//! What the chain shows, with and without a head that was noted elsewhere (design 7; J7, J13).

use countersign_store::audit_file::{Anchor, Verified, verify_reader};
use countersign_store::{Error, Why};
use expect_test::{Expect, expect};

use crate::memory::Disk;
use crate::support::{
    broken, file_of, joined, lines, open, oracle, rechain, requested, resolved, sample, tagged,
};

fn verify(file: &[u8], anchor: Option<Anchor>) -> Result<Verified, Error> {
    let result = verify_reader(file, anchor);
    // The independent reading agrees, as far as it looks.
    if result.is_ok() {
        assert_eq!(
            oracle(file).map(|records| records.len() as u64).ok(),
            result.as_ref().ok().map(|v| v.head.n)
        );
    }
    result
}

fn head(file: &[u8]) -> Anchor {
    verify(file, None).unwrap().head.into()
}

#[test]
fn a_good_file_is_good() {
    let file = sample();
    let verified = verify(&file, None).unwrap();
    assert_eq!((verified.head.n, verified.anchored, verified.open.len()), (6, None, 1));
    assert_eq!(verify(&file, Some(verified.head.into())).unwrap().anchored, Some(6));
    let hash_alone = verified.head.hash.to_string().parse().unwrap();
    assert_eq!(verify(&file, Some(hash_alone)).unwrap().anchored, Some(6));
    let both = verified.head.to_string().parse().unwrap();
    assert_eq!(verify(&file, Some(both)).unwrap().anchored, Some(6));
}

#[test]
fn an_empty_file_is_good_and_has_a_head() {
    let verified = verify(b"", None).unwrap();
    assert_eq!(verified.head.to_string(), format!("0:{}", "0".repeat(64)));
    assert_eq!(verify(b"", Some(verified.head.into())).unwrap().anchored, Some(0));
}

/// A file may have grown since its head was noted.
#[test]
fn an_older_head_still_anchors_what_was_before_it() {
    let file = sample();
    let older = joined(&lines(&file)[..4]);
    let verified = verify(&file, Some(head(&older))).unwrap();
    assert_eq!((verified.anchored, verified.head.n), (Some(4), 6));
}

#[test]
fn every_changed_byte_is_found() {
    let file = sample();
    let anchor = head(&file);
    let last_line = file.len() - 1 - file[..file.len() - 1].iter().rev().position(|b| *b == b'\n').unwrap();
    let mut unseen = 0;
    for position in 0..file.len() {
        let line = 1 + file[..position].iter().filter(|b| **b == b'\n').count() as u64;
        for flip in [0x01, 0x20, 0x80] {
            let mut changed = file.clone();
            changed[position] ^= flip;
            let found = broken(verify(&changed, Some(anchor)));
            assert!(found.is_some(), "byte {position} ^ {flip:#x} with the head");
            match broken(verify(&changed, None)) {
                // The line itself cannot be read or does not follow, or the next one does not follow on it.
                Some((at, _)) => assert!(at == line || at == line + 1, "byte {position}: line {at}"),
                // Nothing follows on the last line, so only a head noted elsewhere vouches for what it says.
                None => {
                    assert!(position >= last_line, "byte {position} ^ {flip:#x} of line {line}");
                    unseen += 1;
                }
            }
        }
    }
    assert!(unseen > 0, "the documentation says that the last line alone is not protected");
}

#[test]
fn every_removed_repeated_or_moved_line_is_found() {
    let file = sample();
    let all = lines(&file);
    let anchor = head(&file);
    for i in 0..all.len() {
        let mut removed = all.clone();
        removed.remove(i);
        assert!(broken(verify(&joined(&removed), Some(anchor))).is_some(), "line {} removed", i + 1);
        // Without a head, only the end can be cut off unseen.
        let unseen = verify(&joined(&removed), None).is_ok();
        assert_eq!(unseen, i + 1 == all.len(), "line {} removed, no head", i + 1);

        let mut repeated = all.clone();
        repeated.insert(i, all[i].clone());
        let found = broken(verify(&joined(&repeated), None));
        assert_eq!(
            found,
            Some((i as u64 + 2, Why::Number { found: i as u64 + 1 })),
            "line {} repeated",
            i + 1
        );

        for j in 0..i {
            let mut swapped = all.clone();
            swapped.swap(i, j);
            let found = broken(verify(&joined(&swapped), None));
            assert_eq!(
                found,
                Some((j as u64 + 1, Why::Number { found: i as u64 + 1 })),
                "{i} and {j} swapped"
            );
        }
    }
}

/// J13: an anchor that compared only the count would let this pass.
#[test]
fn a_rewritten_end_of_the_same_length_fails_on_the_hash() {
    let file = sample();
    let anchor = head(&file);
    let mut forged = lines(&file);
    forged[3] = forged[3].replace("amount\":2", "amount\":9");
    let forged = rechain(&forged, 4);
    assert_eq!(lines(&forged).len(), 6);
    assert_eq!(verify(&forged, None).unwrap().head.n, 6, "the forged chain holds in itself");
    let (line, why) = broken(verify(&forged, Some(anchor))).unwrap();
    assert_eq!(line, 6);
    assert!(matches!(why, Why::HeadDiffers { .. }), "{why}");
    let hash_alone = Anchor { n: None, ..anchor };
    assert_eq!(broken(verify(&forged, Some(hash_alone))), Some((6, Why::HeadNotFound)));
}

/// J7: the chain alone cannot show this, and `docs/audit.md` says so.
#[test]
fn a_chain_made_anew_from_the_beginning_shows_only_against_a_head() {
    let file = sample();
    let forged: Vec<_> = lines(&file).iter().map(|l| l.replace("\"to\":\"b\"", "\"to\":\"c\"")).collect();
    let forged = rechain(&forged, 1);
    assert_ne!(forged, file);
    assert!(verify(&forged, None).is_ok(), "not detected without a head");
    assert!(broken(verify(&forged, Some(head(&file)))).is_some());
}

#[test]
fn a_cut_tail_shows_only_against_a_head() {
    let file = sample();
    let anchor = head(&file);
    for kept in 0..6 {
        let cut = joined(&lines(&file)[..kept]);
        assert!(verify(&cut, None).is_ok(), "{kept} lines kept: not detected without a head");
        let missing = Some((kept as u64 + 1, Why::HeadMissing { expected: 6 }));
        assert_eq!(broken(verify(&cut, Some(anchor))), missing);
        let hash_alone = Anchor { n: None, ..anchor };
        assert_eq!(broken(verify(&cut, Some(hash_alone))), Some((kept as u64, Why::HeadNotFound)));
    }
}

/// Every kind of damage, with what `audit verify` says about it.
#[test]
fn the_first_bad_line_is_named_with_its_reason() {
    let good = lines(&file_of(&[requested(1), resolved(1), tagged("x")]));
    let second = |line: String| joined(&[good[0].clone(), line, good[2].clone()]);
    let check = |file: Vec<u8>, expected: Expect| {
        let said = match verify(&file, None) {
            Ok(verified) => format!("{} good lines", verified.head.n),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&said);
        // A file that is refused is not touched; only a torn end is mended.
        let disk = Disk::with(&file);
        let opened = open(&disk);
        match broken(opened) {
            None => assert!(verify(&disk.bytes(), None).is_ok()),
            Some(_) => assert_eq!((disk.bytes(), disk.aside()), (file, Vec::new())),
        }
    };
    check(joined(&good), expect!["3 good lines"]);
    check(second("what?".into()), expect!["line 2: it is not JSON"]);
    check(second(String::new()), expect!["line 2: it is not JSON"]);
    check(second("{}".into()), expect!["line 2: it does not have the form of an audit line"]);
    check(
        second(good[1].replace(":2,", ": 2,")),
        expect!["line 2: it does not have the form of an audit line"],
    );
    check(second(good[1].replace(":2,", ":02,")), expect!["line 2: it is not JSON"]);
    check(
        second(good[1].replace(":2,", ":2.0,")),
        expect!["line 2: it does not have the form of an audit line"],
    );
    check(second(format!("{}\r", good[1])), expect!["line 2: it does not have the form of an audit line"]);
    check(second(good[1].replace(".001Z", "Z")), expect!["3 good lines"]);
    check(
        second(good[1].replace("\"type\":", "\"Type\":")),
        expect!["line 2: it does not have the form of an audit line"],
    );
    // Two readers could take different ones.
    check(
        second(good[1].replace("\"subject\":", "\"subject\":\"eve\",\"subject\":")),
        expect!["line 2: it does not have the form of an audit line"],
    );
    check(
        second(good[1].replace("\"arguments\":", "\"arguments\":{},\"arguments\":")),
        expect!["line 2: it does not have the form of an audit line"],
    );
    check(second(good[1].replace(":2,", ":3,")), expect!["line 2: its n is 3"]);
    check(
        second(good[1].replace("approved", "denied")),
        expect![[
            "line 3: its prev is not the hash of the line before: that line, or the order, was changed"
        ]],
    );
    check(
        joined(&[good[0].clone(), good[1].clone(), "{".into()]),
        expect!["line 3: it is torn: the last 2 bytes of the file are not a whole line"],
    );
    let mut endless = joined(&good[..1]);
    endless.resize(endless.len() + (4 << 20) + 1, b' ');
    check(endless, expect!["line 2: it has more than 4194304 bytes"]);
    check([b"\xef\xbb\xbf", &joined(&good)[..]].concat(), expect!["line 1: it is not JSON"]);
}

#[test]
fn heads_have_one_spelling() {
    let hash = "0a".repeat(32);
    for good in [hash.clone(), format!("0:{hash}"), format!("18446744073709551615:{hash}")] {
        let anchor: Anchor = good.parse().unwrap();
        assert_eq!(anchor.hash.to_string(), hash);
    }
    let bad = [
        String::new(),
        ":".into(),
        hash[1..].to_owned(),
        format!("{hash}0"),
        hash.to_uppercase(),
        format!(":{hash}"),
        format!("01:{hash}"),
        format!("+1:{hash}"),
        format!("-1:{hash}"),
        format!("18446744073709551616:{hash}"),
        format!("1:2:{hash}"),
        format!("sha256:{hash}"),
        format!(" {hash}"),
        "é".repeat(32),
    ];
    for text in bad {
        assert!(text.parse::<Anchor>().is_err(), "{text:?}");
    }
}
