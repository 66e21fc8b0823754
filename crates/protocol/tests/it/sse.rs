//! Server-sent frames (contract 10.2, scenario F7).

use countersign_protocol::error::SseError;
use countersign_protocol::sse::{Decoder, Frame};

/// All frames' data, then how decoding ended.
fn read(chunks: &[&[u8]]) -> (Vec<String>, Result<(), SseError>) {
    let (frames, end) = frames(Decoder::new(), chunks);
    (frames.into_iter().map(|frame| frame.data).collect(), end)
}

pub(crate) fn frames(mut decoder: Decoder, chunks: &[&[u8]]) -> (Vec<Frame>, Result<(), SseError>) {
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(next) = decoder.next_frame() {
            match next {
                Ok(frame) => frames.push(frame),
                Err(error) => assert_eq!(decoder.finish(), Err(error), "the first failure sticks"),
            }
        }
    }
    (frames, decoder.finish())
}

#[test]
fn table() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("LF", "data: a\n\ndata: b\n\n", &["a", "b"]),
        ("CR", "data: a\r\rdata: b\r\r", &["a", "b"]),
        ("CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
        ("mixed", "data: a\r\n\ndata: b\n\r\n", &["a", "b"]),
        ("one leading space is stripped", "data:  a\n\ndata:b\n\n", &[" a", "b"]),
        ("several lines", "data: a\ndata:\ndata: c\n\n", &["a\n\nc"]),
        ("a comment", ": heartbeat\n\n:\n\ndata: a\n: in between\n\n", &["a"]),
        ("unknown fields", "retry: 5\nfoo: bar\nfoo\ndata: a\n\n", &["a"]),
        ("no data", "id: 1\nevent: x\n\ndata: a\n\n", &["a"]),
        ("empty data is data", "data:\n\ndata\n\n", &["", ""]),
        ("a byte order mark at the start", "\u{feff}data: a\n\n", &["a"]),
        ("a byte order mark later", "data: a\n\n\u{feff}data: b\n\n", &["a"]),
        ("colons in the value", "data: {\"a\":1}\n\n", &["{\"a\":1}"]),
        ("field names are exact", "Data: a\n data: b\ndata : c\n\n", &[]),
        ("empty lines", "\n\n\r\r\n\ndata: a\n\n\n", &["a"]),
        ("nothing", "", &[]),
    ];
    for (name, input, expected) in cases {
        let (data, end) = read(&[input.as_bytes()]);
        assert_eq!(data, *expected, "{name}");
        assert_eq!(end, Ok(()), "{name}");
        let bytes: Vec<&[u8]> = input.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), (data, end), "{name}, byte by byte");
    }
}

#[test]
fn event_and_id_are_kept() {
    let (frames, _) = frames(Decoder::new(), &[b"id: 7\nevent: x\nevent: y\ndata: a\n\ndata: b\n\n"]);
    let frame = |event: Option<&str>, id: Option<&str>, data: &str| Frame {
        event: event.map(str::to_owned),
        id: id.map(str::to_owned),
        data: data.to_owned(),
    };
    assert_eq!(frames, [frame(Some("y"), Some("7"), "a"), frame(None, None, "b")]);
}

/// F7: CR at the end of one chunk and LF at the start of the next are one line end.
#[test]
fn a_line_end_cut_in_two_is_one_line_end() {
    assert_eq!(read(&[b"data: a\r", b"\ndata: b\r\n\r", b"\ndata: c\n\n"]).0, ["a\nb", "c"]);
    // The frame is there when the CR is: nobody waits for an LF that may never come.
    assert_eq!(read(&[b"data: a\r\r"]).0, ["a"]);
}

#[test]
fn utf8_cut_in_two() {
    let text = "data: 🌍é\n\n".as_bytes();
    for at in 0..text.len() {
        assert_eq!(read(&[&text[..at], &text[at..]]).0, ["🌍é"]);
    }
    for bad in [&b"data: \xff\n\n"[..], b": \xc3\x28\n\n", b"data: \xed\xa0\x80\n\n", b"data: \xf0\x9f\n\n"] {
        assert_eq!(read(&[b"data: a\n\n", bad]), (vec!["a".to_owned()], Err(SseError::Utf8)));
    }
}

/// Contract 10.2, measured: 2,000,000 bytes of lines pass, 2,000,001 do not; line ends do not count, field names and
/// comments do (law 9).
#[test]
fn the_bound_of_a_frame() {
    let framed = |size: usize, end: &str| {
        let head = format!("id: 1{end}: note{end}data: ");
        let used = "id: 1".len() + ": note".len() + "data: ".len();
        format!("{head}{}{end}{end}data: next{end}{end}", "x".repeat(size - used))
    };
    for end in ["\n", "\r", "\r\n"] {
        let (data, result) = read(&[framed(2_000_000, end).as_bytes()]);
        assert_eq!((data.len(), result), (2, Ok(())));
        let (data, result) = read(&[framed(2_000_001, end).as_bytes()]);
        assert_eq!((data.len(), result), (0, Err(SseError::TooLarge { limit: 2_000_000 })));
    }
    let with_bom = format!("\u{feff}{}", framed(2_000_000, "\n"));
    assert_eq!(read(&[with_bom.as_bytes()]).0.len(), 2);
}

/// Many lines, many comments, one endless line: each stops at the limit, however it is cut.
#[test]
fn hostile_frames_stop_at_the_limit() {
    for line in ["data: xxxx\n", ": xxxxxxxx\n", "data\n", "foo: xxxxx\n", "xxxxxxxxxx"] {
        let mut decoder = Decoder::with_limit(100);
        let refused = (0..1000).any(|_| {
            decoder.push(line.as_bytes());
            matches!(decoder.next_frame(), Some(Err(SseError::TooLarge { limit: 100 })))
        });
        assert!(refused, "{line:?}");
        decoder.push(b"\n\ndata: a\n\n");
        assert!(decoder.next_frame().is_none(), "nothing comes after the failure");
    }
    // Small frames do not add up.
    let (frames, end) = frames(Decoder::with_limit(10), &[&b"data: abcd\n\n: 12345678\n\n".repeat(50)]);
    assert_eq!((frames.len(), end), (50, Ok(())));
}

/// Contract 10.4 `unterminated-frame`: a frame without its empty line is given to nobody.
#[test]
fn unterminated_frames() {
    for input in ["data: a", "data: a\n", "data: a\r\n", "id: 1\n", "\u{feff}da"] {
        let (data, end) = read(&[input.as_bytes()]);
        assert_eq!((data.len(), end), (0, Err(SseError::Unterminated)), "{input:?}");
        assert_eq!(SseError::Unterminated.code().as_str(), "INCOMPLETE_STREAM");
    }
}
