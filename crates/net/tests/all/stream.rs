//! Plain streams: one system call a read, options set, ends told apart from silence.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use net::buffer::{self, Buffer};
use net::{Peer, Stream, poll_read_into, poll_read_pooled};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::coop;

/// A stream of ours and a blocking socket on the other end of it.
async fn pair() -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = Stream::connect_tcp(listener.local_addr().unwrap(), Duration::from_secs(60))
        .await
        .unwrap();
    (stream, listener.accept().unwrap().0)
}

async fn read(stream: &mut Stream, buffer: &mut Buffer) -> usize {
    std::future::poll_fn(|cx| poll_read_into(cx, stream, buffer))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_read_after_a_short_read_makes_no_system_call() {
    let (mut stream, mut other) = pair().await;
    let mut buffer = buffer::take();
    other.write_all(b"first").unwrap();
    assert_eq!(read(&mut stream, &mut buffer).await, 5);
    // Loopback delivers at once, and this runtime does not get to look at epoll in between: were there a
    // recv, it would bring these bytes.
    other.write_all(b"second").unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(poll_read_into(&mut cx, &mut stream, &mut buffer).is_pending());
    assert_eq!(read(&mut stream, &mut buffer).await, 6);
    assert_eq!(buffer.filled(), b"firstsecond");
}

#[tokio::test]
async fn the_end_is_zero_bytes_after_all_others() {
    let (mut stream, mut other) = pair().await;
    other.write_all(b"last words").unwrap();
    drop(other);
    let mut buffer = buffer::take();
    assert_eq!(read(&mut stream, &mut buffer).await, 10);
    assert_eq!(read(&mut stream, &mut buffer).await, 0);
    assert_eq!(buffer.filled(), b"last words");
}

#[tokio::test]
async fn big_transfers_arrive_whole() {
    let (mut stream, mut other) = pair().await;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let expected = bytes.clone();
    let writer = std::thread::spawn(move || other.write_all(&bytes).unwrap());
    let mut got = Vec::new();
    let mut buffer = buffer::take();
    loop {
        if read(&mut stream, &mut buffer).await == 0 {
            break;
        }
        got.extend_from_slice(buffer.filled());
        buffer.consume(buffer.len());
    }
    writer.join().unwrap();
    assert!(got == expected);
}

#[tokio::test]
async fn writes_several_slices_at_once_and_shuts_down() {
    let (mut stream, mut other) = pair().await;
    let slices = [IoSlice::new(b"head"), IoSlice::new(b"er and body")];
    assert_eq!(stream.write_vectored(&slices).await.unwrap(), 15);
    stream.flush().await.unwrap();
    stream.shutdown().await.unwrap();
    let mut got = String::new();
    other.read_to_string(&mut got).unwrap();
    assert_eq!(got, "header and body");
}

#[tokio::test]
async fn a_connected_stream_has_its_options() {
    let (stream, _other) = pair().await;
    let Stream::Tcp(socket) = &stream else {
        panic!("not TCP")
    };
    let socket = SockRef::from(&**socket);
    assert!(socket.tcp_nodelay().unwrap());
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(20));
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let address = listener.local_addr().unwrap();
    let quiet = Stream::connect_tcp(address, Duration::ZERO).await.unwrap();
    assert_eq!(quiet.peer().unwrap(), Peer::Tcp(address));
    let Stream::Tcp(socket) = &quiet else {
        panic!("not TCP")
    };
    assert!(!SockRef::from(&**socket).keepalive().unwrap());
}

#[tokio::test]
async fn connects_to_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut stream = Stream::connect_unix(&path).await.unwrap();
    assert_eq!(
        (stream.peer().unwrap(), stream.local().unwrap()),
        (Peer::Unix, Peer::Unix)
    );
    let (mut other, _) = listener.accept().unwrap();
    other.write_all(b"hello").unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
}

#[tokio::test]
async fn refused_connections_are_errors() {
    // A socket that is bound and does not listen keeps its port from everybody else.
    let nobody = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    nobody
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let address = nobody.local_addr().unwrap().as_socket().unwrap();
    let error = Stream::connect_tcp(address, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// Reads once, as the data plane does.
fn poll(cx: &mut Context<'_>, stream: &mut Stream, place: &mut Option<Buffer>) -> Poll<usize> {
    poll_read_pooled(cx, stream, place, buffer::take).map(Result::unwrap)
}

/// Time after which something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// What `reading` brings that asks as often as it is woken: by the socket, since the end of its time wakes
/// it, too, and then it finds its bytes.
async fn woken<T>(reading: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let read = tokio::time::timeout(PATIENCE, reading).await.unwrap();
    assert!(begun.elapsed() < PATIENCE, "nothing but the time has woken it");
    read
}

/// What a task reads.
async fn bytes(stream: &mut Stream, place: &mut Option<Buffer>) -> usize {
    woken(std::future::poll_fn(|cx| poll(cx, stream, place))).await
}

#[tokio::test]
async fn a_pooled_read_is_one_system_call_and_holds_a_buffer_only_with_bytes() {
    let (mut stream, mut other) = pair().await;
    let (mut place, mut cx) = (None, Context::from_waker(Waker::noop()));
    assert!(poll(&mut cx, &mut stream, &mut place).is_pending());
    assert!(place.is_none() && buffer::in_use_count() == 0);
    other.write_all(b"first").unwrap();
    assert_eq!(bytes(&mut stream, &mut place).await, 5);
    other.write_all(b"second").unwrap();
    for _ in 0..3 {
        assert!(
            poll(&mut cx, &mut stream, &mut place).is_pending(),
            "a recv would bring bytes"
        );
    }
    assert_eq!(bytes(&mut stream, &mut place).await, 6);
    assert_eq!(place.take().unwrap().filled(), b"firstsecond");
    drop(other);
    assert_eq!(bytes(&mut stream, &mut place).await, 0);
    assert!(place.is_none() && buffer::in_use_count() == 0);
}

#[tokio::test]
async fn whoever_asks_last_is_woken() {
    let local = tokio::task::LocalSet::new();
    let (mut stream, mut other) = pair().await;
    let ask = |mut stream: Stream| async move {
        std::future::poll_fn(|cx| {
            // Again and again, of which the runtime hears once.
            (0..3).for_each(|_| assert!(poll(cx, &mut stream, &mut None).is_pending()));
            Poll::Ready(())
        })
        .await;
        stream
    };
    for _ in 0..3 {
        let asked = local.spawn_local(ask(stream));
        stream = local.run_until(asked).await.unwrap();
        assert!(!stream.has_news());
        stream = ask(stream).await;
    }
    let reading = async move { (bytes(&mut stream, &mut None).await, stream) };
    let reader = local.spawn_local(reading);
    let answering = async { other.write_all(b"answer").unwrap() };
    let (read, ()) = local
        .run_until(async { tokio::join!(biased; reader, answering) })
        .await;
    let (n, mut stream) = read.unwrap();
    assert_eq!(n, 6);
    // The waker that was registered is used up.
    let mut place = None;
    let reading = bytes(&mut stream, &mut place);
    let answering = async { other.write_all(b"again").unwrap() };
    let (n, ()) = tokio::join!(biased; reading, answering);
    assert_eq!(n, 5);
}

#[tokio::test]
async fn a_reader_without_budget_is_woken_all_the_same() {
    let (mut stream, mut other) = pair().await;
    let (mut place, mut polls) = (None, 0);
    let reading = std::future::poll_fn(|cx| {
        polls += 1;
        while polls == 1 && coop::has_budget_remaining() {
            match coop::poll_proceed(cx) {
                Poll::Ready(budget) => budget.made_progress(),
                Poll::Pending => break,
            }
        }
        poll(cx, &mut stream, &mut place)
    });
    let reading = woken(reading);
    let answering = async {
        // It has been told to come again, and has.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        other.write_all(b"answer").unwrap();
    };
    let (read, ()) = tokio::join!(biased; reading, answering);
    assert_eq!(read, 6);
}

#[tokio::test]
async fn whoever_asks_again_after_another_has_read_otherwise_is_woken() {
    let local = tokio::task::LocalSet::new();
    let (mut stream, mut other) = pair().await;
    std::future::poll_fn(|cx| {
        assert!(poll(cx, &mut stream, &mut None).is_pending());
        Poll::Ready(())
    })
    .await;
    let otherwise = async move {
        std::future::poll_fn(|cx| {
            let mut bytes = [0; 8];
            let read = Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut bytes));
            assert!(read.is_pending());
            Poll::Ready(())
        })
        .await;
        stream
    };
    let otherwise = local.spawn_local(otherwise);
    let mut stream = local.run_until(otherwise).await.unwrap();
    let mut place = None;
    let reading = bytes(&mut stream, &mut place);
    let answering = async { other.write_all(b"answer").unwrap() };
    let (n, ()) = tokio::join!(biased; reading, answering);
    assert_eq!(n, 6);
}

/// Or one whose answers take no other turn would keep the worker.
#[tokio::test]
async fn writing_takes_from_the_budget() {
    let (mut stream, _other) = pair().await;
    let writing = tokio::spawn(std::future::poll_fn(move |cx| {
        let mut written = 0;
        while written < 1000 && Pin::new(&mut stream).poll_write(cx, b"x").is_ready() {
            written += 1;
        }
        Poll::Ready(written)
    }));
    let written = writing.await.unwrap();
    assert!((1..1000).contains(&written), "{written}");
}

#[tokio::test]
async fn a_waiting_read_needs_no_buffer() {
    let (mut stream, _other) = pair().await;
    let before = buffer::in_use_count();
    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut buffer = buffer::take();
        assert!(matches!(
            poll_read_into(&mut cx, &mut stream, &mut buffer),
            Poll::Pending
        ));
    }
    assert_eq!(buffer::in_use_count(), before);
    assert!(Pin::new(&mut stream).get_mut().peer().is_ok());
}

/// Waits until the runtime knows what has come.
async fn readable(stream: &Stream) {
    let Stream::Tcp(stream) = stream else {
        unreachable!("a pair is of plain sockets");
    };
    stream.readable().await.unwrap();
}

#[tokio::test]
async fn bytes_and_the_end_that_nobody_asked_for_are_news() {
    let (mut stream, mut other) = pair().await;
    assert!(!stream.has_news());
    other.write_all(b"x").unwrap();
    readable(&stream).await;
    assert!(stream.has_news());
    let (mut stream, other) = pair().await;
    drop(other);
    readable(&stream).await;
    assert!(stream.has_news());
    assert!(Stream::Detached.has_news(), "no connection is a lost one");
}

/// A client that gives up says goodbye first, as a rule.
#[tokio::test]
async fn the_end_is_heard_behind_bytes_that_nobody_has_read() {
    let (mut stream, mut other) = pair().await;
    other.write_all(b"goodbye").unwrap();
    readable(&stream).await;
    {
        let mut closed = std::pin::pin!(stream.closed());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(closed.as_mut().poll(&mut cx).is_pending(), "bytes are no end");
        drop(other);
        tokio::time::timeout(PATIENCE, closed).await.unwrap();
    }
    let mut buffer = buffer::take();
    assert_eq!(read(&mut stream, &mut buffer).await, 7, "nothing is taken");
}

#[tokio::test]
async fn who_waits_for_bytes_is_woken_though_somebody_looks_for_news() {
    let (mut stream, mut other) = pair().await;
    let mut buffer = buffer::take();
    let reading = std::future::poll_fn(|cx| {
        let read = poll_read_into(cx, &mut stream, &mut buffer);
        assert!(read.is_ready() || !stream.has_news());
        read
    });
    let answering = async { other.write_all(b"answer").unwrap() };
    let (read, ()) = tokio::join!(biased; reading, answering);
    assert_eq!(read.unwrap(), 6);
}

/// Between two exchanges a stream goes from the runtime of one thread to that of another.
#[test]
fn a_stream_goes_to_another_thread_unless_bytes_are_there() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let here = runtime();
    let (mut stream, mut other) = here.block_on(pair());
    let mut buffer = buffer::take();
    other.write_all(b"first").unwrap();
    assert_eq!(here.block_on(read(&mut stream, &mut buffer)), 5);
    let elsewhere = std::thread::spawn(move || {
        let there = runtime();
        there.block_on(async {
            stream.adopt().unwrap();
            stream.write_all(b"go on").await.unwrap();
            let mut buffer = buffer::take();
            assert_eq!(read(&mut stream, &mut buffer).await, 6);
            assert_eq!(buffer.filled(), b"second");
        });
        stream
    });
    other.read_exact(&mut [0; 5]).unwrap();
    other.write_all(b"second").unwrap();
    let mut stream = elsewhere.join().unwrap();
    other.write_all(b"unasked").unwrap();
    let _guard = here.enter();
    let deadline = Instant::now() + Duration::from_secs(60);
    // Its runtime is gone, which does not matter. The bytes may take their time.
    while stream.adopt().is_ok() {
        assert!(Instant::now() < deadline, "bytes that nobody has read");
    }
    assert!(stream.adopt().is_err(), "it is of no use any more");
}
