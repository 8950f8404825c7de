use super::*;

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    put_string(&mut text, bytes);
    text
}

fn message(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn validate() -> Vec<u8> {
    // As torch 2.2.2, 2.6.0 and 2.15.0 send it.
    b"\x00\xce\xf7\x85\x3c".to_vec()
}

/// Every request, as bytes and as what they mean.
fn all() -> Vec<(Vec<u8>, Request)> {
    let key = || b"/k".to_vec();
    let value = || b"value".to_vec();
    let (k, v) = (string(&key()), string(&value()));
    let one = 1_u64.to_le_bytes();
    let two = 2_u64.to_le_bytes();
    let minus = (-3_i64).to_le_bytes();
    vec![
        (validate(), Request::Validate),
        (message(&[&[1], &k, &v]), Request::Set(key(), value())),
        (
            message(&[&[2], &k, &string(b""), &v]),
            Request::CompareSet {
                key: key(),
                expected: Vec::new(),
                desired: value(),
            },
        ),
        (message(&[&[3], &k]), Request::Get(key())),
        (message(&[&[4], &k, &minus]), Request::Add(key(), -3)),
        (
            message(&[&[5], &two, &k, &string(b"")]),
            Request::Check(vec![key(), Vec::new()]),
        ),
        (message(&[&[6], &one, &k]), Request::Wait(vec![key()])),
        (
            message(&[&[6], &0_u64.to_le_bytes()]),
            Request::Wait(Vec::new()),
        ),
        (message(&[&[7]]), Request::NumKeys),
        (message(&[&[8], &k]), Request::DeleteKey(key())),
        (message(&[&[9], &k, &v]), Request::Append(key(), value())),
        (
            message(&[&[10], &two, &k, &k]),
            Request::MultiGet(vec![key(), key()]),
        ),
        (
            message(&[&[11], &two, &k, &v, &v, &k]),
            Request::MultiSet(vec![(key(), value()), (value(), key())]),
        ),
        (message(&[&[12]]), Request::CancelWait),
        (
            message(&[&[13], &0xfedc_ba98_u32.to_le_bytes()]),
            Request::Ping(0xfedc_ba98),
        ),
        (
            message(&[&[14], &k, &v]),
            Request::QueuePush(key(), value()),
        ),
        (message(&[&[15], &k]), Request::QueuePop(key())),
        (message(&[&[16], &k]), Request::QueueLen(key())),
        (message(&[&[17]]), Request::ListKeys),
        (message(&[&[18], &k, &minus]), Request::Barrier(key(), -3)),
    ]
}

/// What comes out of pieces, each read on its own.
fn decode<'a>(
    decoder: &mut Decoder,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Request>, ProtocolError> {
    let mut requests = Vec::new();
    for piece in pieces {
        decoder.buffer().extend_from_slice(piece);
        while let Some(request) = decoder.next()? {
            requests.push(request);
        }
    }
    Ok(requests)
}

fn after_validation(bytes: &[u8]) -> Result<Vec<Request>, ProtocolError> {
    let mut decoder = Decoder::default();
    decode(&mut decoder, [validate().as_slice(), bytes]).map(|mut requests| requests.split_off(1))
}

#[test]
fn every_request_is_understood_at_every_split() {
    let (bytes, expected): (Vec<_>, Vec<_>) = all().into_iter().unzip();
    let bytes = bytes.concat();
    for split in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(split);
        let found = decode(&mut Decoder::default(), [head, tail]).unwrap();
        assert_eq!(found, expected, "split at {split}");
    }
    let found = decode(&mut Decoder::default(), bytes.chunks(1)).unwrap();
    assert_eq!(found, expected, "byte by byte");
}

#[test]
fn nothing_is_understood_before_the_client_has_shown_what_it_is() {
    let first = |bytes: &[u8]| decode(&mut Decoder::default(), [bytes]).unwrap_err();
    // Torch 1.13: an ADD with the number that it had then.
    let old = message(&[&[3], &string(b"init/"), &1_u64.to_le_bytes()]);
    assert_eq!(first(&old), ProtocolError::NotValidated);
    assert_eq!(first(b"GET / HTTP/1.1\r\n"), ProtocolError::NotValidated);
    assert_eq!(first(b"\x00\x01\x02\x03\x04"), ProtocolError::NotValidated);
    assert_eq!(
        decode(&mut Decoder::default(), [b"\x00\xce".as_slice()]),
        Ok(Vec::new())
    );
}

#[test]
fn unknown_operations_are_told_with_their_number() {
    for operation in 19..=255 {
        let error = after_validation(&[operation]).unwrap_err();
        assert_eq!(error, ProtocolError::UnknownOperation(operation));
    }
    // It is the first request and no other.
    let error = after_validation(&validate()).unwrap_err();
    assert_eq!(error, ProtocolError::UnknownOperation(0));
}

#[test]
fn lengths_are_judged_before_their_bytes_come() {
    let length = |length: usize| (length as u64).to_le_bytes();
    let cases = [
        (message(&[&[3], &length(KEY_MAX + 1)]), "8193"),
        (message(&[&[3], &[0xff; 8]]), "18446744073709551615"),
        (
            message(&[&[1], &string(b"k"), &length(VALUE_MAX + 1)]),
            "8388609",
        ),
        (
            message(&[&[11], &length(1), &string(b"k"), &length(VALUE_MAX + 1)]),
            "8388609",
        ),
        (message(&[&[11], &length(1), &length(KEY_MAX + 1)]), "8193"),
        (message(&[&[6], &(KEYS_MAX + 1).to_le_bytes()]), "131073"),
        (message(&[&[10], &[0xff; 8]]), "18446744073709551615"),
        (message(&[&[11], &[0xff; 8]]), "18446744073709551615"),
    ];
    for (bytes, number) in cases {
        let error = after_validation(&bytes).unwrap_err().to_string();
        assert!(error.contains(number), "{error}");
    }
    let longest = message(&[&[3], &string(&[7; KEY_MAX])]);
    assert_eq!(
        after_validation(&longest).unwrap(),
        [Request::Get(vec![7; KEY_MAX])]
    );
    let longest = message(&[&[1], &string(b"k"), &string(&vec![7; VALUE_MAX])]);
    assert_eq!(after_validation(&longest).unwrap().len(), 1);
}

#[test]
fn a_request_of_many_values_has_a_bound() {
    let mut decoder = Decoder::default();
    decode(&mut decoder, [validate().as_slice()]).unwrap();
    let begin = message(&[&[11], &100_u64.to_le_bytes()]);
    decode(&mut decoder, [begin.as_slice()]).unwrap();
    let pair = message(&[&string(b"k"), &string(&vec![0; VALUE_MAX])]);
    for _ in 0..7 {
        assert_eq!(decode(&mut decoder, [pair.as_slice()]).unwrap(), []);
    }
    assert!(decoder.held() < REQUEST_MAX + VALUE_MAX);
    let error = decode(&mut decoder, [pair.as_slice()]).unwrap_err();
    assert_eq!(error, ProtocolError::RequestTooLong);
}

#[test]
fn an_idle_connection_holds_nothing_of_a_long_request() {
    let mut decoder = Decoder::default();
    let long = message(&[
        &validate(),
        &[1],
        &string(b"k"),
        &string(&vec![0; VALUE_MAX]),
    ]);
    assert_eq!(decode(&mut decoder, [long.as_slice()]).unwrap().len(), 2);
    decoder.buffer();
    assert_eq!(decoder.held(), 0);
}
