use super::*;

const A: ClientId = 1;
const B: ClientId = 2;
const C: ClientId = 3;
const MIB: usize = 1024 * 1024;

fn state() -> State {
    State::new(MIB, 100)
}

/// What a client is answered and who is woken.
fn ask(state: &mut State, client: ClientId, request: Request) -> (Vec<u8>, Vec<ClientId>) {
    let mut answer = Vec::new();
    let woken = state.apply(client, request, &mut answer).unwrap();
    (answer, woken)
}

fn refused(state: &mut State, request: Request) -> Refusal {
    state.apply(A, request, &mut Vec::new()).unwrap_err()
}

fn bytes(text: &str) -> Bytes {
    text.as_bytes().to_vec()
}

fn set(state: &mut State, key: &str, value: &str) -> Vec<ClientId> {
    let (answer, woken) = ask(state, A, Request::Set(bytes(key), bytes(value)));
    assert!(answer.is_empty());
    woken
}

fn get(state: &mut State, key: &str) -> String {
    let (answer, _) = ask(state, A, Request::Get(bytes(key)));
    let (length, value) = answer.split_first_chunk::<8>().unwrap();
    assert_eq!(u64::from_le_bytes(*length), value.len() as u64);
    String::from_utf8(value.to_vec()).unwrap()
}

fn number(answer: &(Vec<u8>, Vec<ClientId>)) -> i64 {
    i64::from_le_bytes(answer.0.as_slice().try_into().unwrap())
}

fn add(state: &mut State, key: &str, by: i64) -> i64 {
    number(&ask(state, A, Request::Add(bytes(key), by)))
}

/// Whether the wait is over at once.
fn wait(state: &mut State, client: ClientId, keys: &[&str]) -> bool {
    let keys = keys.iter().map(|key| bytes(key)).collect();
    let (answer, woken) = ask(state, client, Request::Wait(keys));
    assert!(woken.is_empty());
    match answer.as_slice() {
        [] => false,
        [STOP_WAITING] => true,
        other => panic!("{other:?}"),
    }
}

fn compare(state: &mut State, key: &str, expected: &str, desired: &str) -> String {
    let request = Request::CompareSet {
        key: bytes(key),
        expected: bytes(expected),
        desired: bytes(desired),
    };
    let (answer, _) = ask(state, A, request);
    String::from_utf8(answer[8..].to_vec()).unwrap()
}

fn push(state: &mut State, key: &str, value: &str) -> Vec<ClientId> {
    ask(state, A, Request::QueuePush(bytes(key), bytes(value))).1
}

fn pop(state: &mut State, key: &str) -> (i64, String) {
    let (answer, _) = ask(state, A, Request::QueuePop(bytes(key)));
    let (length, rest) = answer.split_first_chunk::<8>().unwrap();
    let value = rest.get(8..).unwrap_or_default().to_vec();
    (
        i64::from_le_bytes(*length),
        String::from_utf8(value).unwrap(),
    )
}

fn barrier(state: &mut State, client: ClientId, count: i64) -> (Vec<u8>, Vec<ClientId>) {
    ask(state, client, Request::Barrier(bytes("bar"), count))
}

/// Nobody waits, and nothing is held but for what is stored.
fn assert_nothing_waits(state: &State) {
    assert!(
        state.waiting.is_empty() && state.awaited.is_empty(),
        "{state:?}"
    );
    let values = state.values.iter().map(|(key, value)| cost(key, value));
    let queues = state.queues.iter().map(|(key, queue)| {
        cost(key, &[]) + queue.iter().map(|value| value.len() + ENTRY).sum::<usize>()
    });
    assert_eq!(state.held, values.chain(queues).sum::<usize>());
}

#[test]
fn values_are_set_read_counted_listed_and_deleted() {
    let mut state = state();
    set(&mut state, "b", "1");
    set(&mut state, "a", "one");
    set(&mut state, "a", "two");
    assert_eq!(get(&mut state, "a"), "two");
    assert_eq!(get(&mut state, "missing"), "");
    assert_eq!(number(&ask(&mut state, A, Request::NumKeys)), 2);
    let (listed, _) = ask(&mut state, A, Request::ListKeys);
    let mut expected = Vec::new();
    put_length(&mut expected, 2);
    put_string(&mut expected, b"a");
    put_string(&mut expected, b"b");
    assert_eq!(listed, expected);
    assert_eq!(
        number(&ask(&mut state, A, Request::DeleteKey(bytes("a")))),
        1
    );
    assert_eq!(
        number(&ask(&mut state, A, Request::DeleteKey(bytes("a")))),
        0
    );
    assert_eq!(get(&mut state, "a"), "");
    assert_nothing_waits(&state);
}

#[test]
fn several_values_are_set_and_read_at_once_and_appended_to() {
    let mut state = state();
    let pairs = vec![(bytes("a"), bytes("1")), (bytes("b"), bytes("22"))];
    ask(&mut state, A, Request::MultiSet(pairs));
    ask(&mut state, A, Request::Append(bytes("a"), bytes("x")));
    ask(&mut state, A, Request::Append(bytes("c"), bytes("y")));
    let keys = ["a", "missing", "b", "c"].map(bytes).to_vec();
    let (answer, _) = ask(&mut state, A, Request::MultiGet(keys));
    let mut expected = Vec::new();
    for value in ["1x", "", "22", "y"] {
        put_string(&mut expected, value.as_bytes());
    }
    assert_eq!(answer, expected);
    assert_nothing_waits(&state);
}

#[test]
fn add_counts_in_decimal_text_as_torch_reads_it() {
    let mut state = state();
    assert_eq!(add(&mut state, "n", 5), 5);
    assert_eq!(add(&mut state, "n", -7), -2);
    assert_eq!(get(&mut state, "n"), "-2");
    set(&mut state, "t", " \t+12 apples");
    assert_eq!(add(&mut state, "t", 1), 13);
    set(&mut state, "m", &i64::MAX.to_string());
    assert_eq!(add(&mut state, "m", 1), i64::MIN);
    for wrong in ["", "x", "-", "99999999999999999999", " "] {
        set(&mut state, "w", wrong);
        assert_eq!(
            refused(&mut state, Request::Add(bytes("w"), 1)),
            Refusal::NotANumber
        );
        assert_eq!(get(&mut state, "w"), wrong);
    }
    assert_nothing_waits(&state);
}

#[test]
fn compare_set_says_what_torch_says_lies_included() {
    let mut state = state();
    // On a missing key: what was expected, though nothing is there.
    assert_eq!(compare(&mut state, "k", "old", "new"), "old");
    assert_eq!(number(&ask(&mut state, A, Request::NumKeys)), 0);
    assert_eq!(compare(&mut state, "k", "", "one"), "one");
    assert_eq!(compare(&mut state, "k", "", "two"), "one");
    assert_eq!(compare(&mut state, "k", "one", "two"), "two");
    assert_eq!(compare(&mut state, "k", "one", "three"), "two");
    set(&mut state, "empty", "");
    assert_eq!(compare(&mut state, "empty", "", "x"), "x");
    assert_nothing_waits(&state);
}

#[test]
fn a_wait_ends_with_its_last_key_by_every_kind_of_write() {
    let writes: [fn(Bytes) -> Request; 6] = [
        |key| Request::Set(key, bytes("1")),
        |key| Request::Add(key, 1),
        |key| Request::Append(key, bytes("1")),
        |key| Request::MultiSet(vec![(key, bytes("1"))]),
        |key| Request::QueuePush(key, bytes("1")),
        |key| Request::CompareSet {
            key,
            expected: Vec::new(),
            desired: bytes("1"),
        },
    ];
    for write in writes {
        let mut state = state();
        assert!(!wait(&mut state, A, &["x", "y", "x"]));
        assert_eq!(ask(&mut state, B, write(bytes("y"))).1, [0; 0]);
        assert_eq!(ask(&mut state, B, write(bytes("x"))).1, [A]);
        assert!(wait(&mut state, A, &["x", "y"]));
        assert_nothing_waits(&state);
    }
}

#[test]
fn a_write_wakes_all_who_wait_in_their_order() {
    let mut state = state();
    assert!(wait(&mut state, A, &[]));
    for client in [C, A, B] {
        assert!(!wait(&mut state, client, &["k"]));
    }
    assert_eq!(compare(&mut state, "k", "no", "1"), "no");
    assert_eq!(set(&mut state, "k", "1"), [C, A, B]);
    assert_eq!(set(&mut state, "k", "2"), [0; 0]);
    assert_nothing_waits(&state);
}

#[test]
fn both_orders_of_a_cancelled_wait_come_out_right() {
    let mut state = state();
    // Cancelled first: the write wakes nobody.
    assert!(!wait(&mut state, A, &["k", "other"]));
    assert_eq!(ask(&mut state, A, Request::CancelWait).0, [WAIT_CANCELLED]);
    assert_nothing_waits(&state);
    assert_eq!(set(&mut state, "k", "1"), [0; 0]);
    // The write first: woken, and the cancellation has its answer all the same.
    assert!(!wait(&mut state, A, &["late"]));
    assert_eq!(set(&mut state, "late", "1"), [A]);
    assert_eq!(ask(&mut state, A, Request::CancelWait).0, [WAIT_CANCELLED]);
    assert_eq!(ask(&mut state, A, Request::CancelWait).0, [WAIT_CANCELLED]);
    assert_nothing_waits(&state);
}

#[test]
fn a_client_that_is_gone_leaves_nothing_behind() {
    let mut state = state();
    assert!(!wait(&mut state, A, &["a", "b"]));
    assert!(!wait(&mut state, B, &["b"]));
    state.forget(A);
    assert_eq!(set(&mut state, "b", "1"), [B]);
    assert_eq!(set(&mut state, "a", "1"), [0; 0]);
    // A second wait takes the place of the first.
    assert!(!wait(&mut state, A, &["c"]));
    assert!(!wait(&mut state, A, &["d"]));
    assert_eq!(set(&mut state, "c", "1"), [0; 0]);
    assert_eq!(set(&mut state, "d", "1"), [A]);
    assert_nothing_waits(&state);
}

#[test]
fn queues_are_first_in_first_out_and_apart_from_values() {
    let mut state = state();
    assert_eq!(pop(&mut state, "q"), (0, String::new()));
    push(&mut state, "q", "one");
    push(&mut state, "q", "");
    set(&mut state, "q", "value");
    assert_eq!(
        number(&ask(&mut state, A, Request::QueueLen(bytes("q")))),
        2
    );
    assert_eq!(number(&ask(&mut state, A, Request::NumKeys)), 1);
    assert_eq!(
        number(&ask(&mut state, A, Request::DeleteKey(bytes("q")))),
        1
    );
    assert_eq!(ask(&mut state, A, Request::Check(vec![bytes("q")])).0, [0]);
    assert!(wait(&mut state, A, &["q"]));
    assert_eq!(pop(&mut state, "q"), (2, "one".to_owned()));
    assert_eq!(pop(&mut state, "q"), (1, String::new()));
    assert_eq!(ask(&mut state, A, Request::Check(vec![bytes("q")])).0, [1]);
    assert_nothing_waits(&state);
}

#[test]
fn each_push_wakes_one() {
    let mut state = state();
    for client in [A, B, C] {
        assert!(!wait(&mut state, client, &["q"]));
    }
    assert_eq!(push(&mut state, "q", "1"), [A]);
    assert_eq!(push(&mut state, "q", "2"), [B]);
    state.forget(C);
    assert_eq!(push(&mut state, "q", "3"), [0; 0]);
    assert_nothing_waits(&state);
    // Who waits for more than the queue is not the one that is woken.
    assert!(!wait(&mut state, A, &["r", "k"]));
    assert!(!wait(&mut state, B, &["r"]));
    assert_eq!(push(&mut state, "r", "1"), [B]);
    assert_eq!(set(&mut state, "k", "1"), [A]);
    assert_nothing_waits(&state);
}

#[test]
fn a_barrier_ends_with_the_last_who_comes() {
    let mut state = state();
    assert_eq!(barrier(&mut state, A, 3), (vec![], vec![]));
    assert_eq!(barrier(&mut state, B, 3), (vec![], vec![]));
    // Looking at its key, or writing it, does not open it.
    assert_eq!(get(&mut state, "bar"), "2");
    assert_eq!(set(&mut state, "bar", "2"), [0; 0]);
    assert_eq!(barrier(&mut state, C, 3), (vec![STOP_WAITING], vec![A, B]));
    assert_eq!(barrier(&mut state, C, 3), (vec![STOP_WAITING], vec![]));
    assert_nothing_waits(&state);
    // One who has given up has come all the same.
    let mut state = State::new(MIB, 100);
    barrier(&mut state, A, 2);
    assert_eq!(ask(&mut state, A, Request::CancelWait).0, [WAIT_CANCELLED]);
    assert_eq!(barrier(&mut state, B, 2), (vec![STOP_WAITING], vec![]));
    assert_nothing_waits(&state);
}

#[test]
fn pings_come_back() {
    let (answer, _) = ask(&mut state(), A, Request::Ping(0x0102_0304));
    assert_eq!(answer, [4, 3, 2, 1]);
    assert_eq!(ask(&mut state(), A, Request::Validate).0, [0; 0]);
}

#[test]
fn what_is_stored_has_a_bound_and_what_was_there_stays() {
    let mut state = State::new(2 * MIB, 100);
    let value = vec![1; MIB];
    ask(&mut state, A, Request::Set(bytes("a"), value.clone()));
    let writes = [
        Request::Set(bytes("b"), value.clone()),
        Request::Append(bytes("a"), value.clone()),
        Request::QueuePush(bytes("q"), value.clone()),
        Request::Wait(vec![vec![0; MIB / 2]]),
        Request::MultiSet(vec![(bytes("c"), bytes("1")), (bytes("b"), value.clone())]),
    ];
    for write in writes {
        assert_eq!(refused(&mut state, write), Refusal::Full(2));
    }
    // Its own place may be taken again.
    ask(&mut state, A, Request::Set(bytes("a"), value));
    assert_nothing_waits(&state);
    ask(&mut state, A, Request::DeleteKey(bytes("a")));
    ask(&mut state, A, Request::DeleteKey(bytes("c")));
    assert_eq!(state.held, 0);
}

#[test]
fn the_number_of_keys_has_a_bound() {
    let mut state = State::new(MIB, 3);
    set(&mut state, "a", "1");
    push(&mut state, "q", "1");
    set(&mut state, "b", "1");
    for write in [
        Request::Set(bytes("c"), Vec::new()),
        Request::Add(bytes("c"), 1),
        Request::QueuePush(bytes("r"), Vec::new()),
        Request::Barrier(bytes("c"), 2),
    ] {
        assert_eq!(refused(&mut state, write), Refusal::TooManyKeys(3));
    }
    set(&mut state, "a", "2");
    push(&mut state, "q", "2");
}

#[test]
fn an_answer_has_a_bound() {
    let mut state = State::new(1024 * MIB, 100);
    ask(&mut state, A, Request::Set(bytes("a"), vec![0; 8 * MIB]));
    let keys = vec![bytes("a"); 9];
    assert_eq!(
        refused(&mut state, Request::MultiGet(keys)),
        Refusal::AnswerTooLong
    );
    for _ in 0..8 {
        ask(&mut state, A, Request::Append(bytes("a"), vec![0; 8 * MIB]));
    }
    assert_eq!(
        refused(&mut state, Request::Get(bytes("a"))),
        Refusal::AnswerTooLong
    );
}

#[test]
fn after_a_reset_nothing_is_left() {
    let mut state = state();
    set(&mut state, "a", "1");
    push(&mut state, "q", "1");
    wait(&mut state, A, &["x"]);
    state.clear();
    assert_eq!(state.held, 0);
    assert_nothing_waits(&state);
    assert_eq!(get(&mut state, "a"), "");
}
