//! Native methods whose purpose it is to wait: that they do is no fault.

/// Class, and what the names of its methods begin with.
const WAITERS: [(&str, &str); 28] = [
    ("java.lang.Object", "wait"),
    // For the collection, which the VM's own thread does: what it costs is in the logs of the collector.
    ("java.lang.Runtime", "gc"),
    ("java.lang.Thread", "sleep"),
    // For the new thread to be there.
    ("java.lang.Thread", "start"),
    ("java.lang.Thread", "yield"),
    ("java.lang.VirtualThread", ""),
    ("java.lang.ref.Reference", "waitForReferencePendingList"),
    ("java.lang.ProcessHandleImpl", "waitForProcessExit"),
    ("java.lang.ProcessImpl", "waitForProcessExit"),
    ("jdk.internal.misc.Unsafe", "park"),
    ("sun.misc.Unsafe", "park"),
    ("jdk.internal.vm.Continuation", ""),
    ("jdk.internal.misc.Signal", ""),
    ("sun.nio.ch.EPoll", "wait"),
    ("sun.nio.ch.EPollArrayWrapper", "epollWait"),
    ("sun.nio.ch.Net", "poll"),
    ("sun.nio.ch.Net", "accept"),
    ("sun.nio.ch.Net", "connect"),
    ("sun.nio.ch.Net", "pollConnect"),
    ("sun.nio.ch.SocketDispatcher", "read"),
    ("sun.nio.ch.DatagramChannelImpl", "receive"),
    ("sun.nio.ch.UnixDomainSockets", "accept"),
    ("sun.nio.fs.LinuxWatchService", "poll"),
    ("java.net.PlainSocketImpl", "socket"),
    ("java.net.SocketInputStream", "socketRead"),
    ("java.net.PlainDatagramSocketImpl", "receive"),
    ("io.netty.channel.epoll.Native", "epoll"),
    ("io.netty.channel.kqueue.Native", "keventWait"),
];

/// Whether a method is one of these.
pub(super) fn waits(class: &str, method: &str) -> bool {
    WAITERS.iter().any(|(known, beginning)| *known == class && method.starts_with(beginning))
}

/// The patterns that select these, and no JNI function either: what may take long without a word.
pub fn patterns() -> impl Iterator<Item = String> {
    WAITERS.iter().map(|(class, beginning)| format!("{class}::{beginning}*")).chain(["JNIEnv::*".to_owned()])
}

#[cfg(test)]
mod tests {
    use super::{patterns, waits};

    /// Check that versions of a method are told by how they begin, and that other methods of the class are not.
    #[test]
    fn by_beginning() {
        assert!(waits("java.lang.Object", "wait0") && waits("java.lang.Thread", "sleepNanos0"));
        assert!(!waits("java.lang.Object", "notifyAll") && !waits("java.lang.Other", "wait0"));
        assert!(patterns().any(|pattern| pattern == "java.lang.Object::wait*"));
        assert_eq!(patterns().last().as_deref(), Some("JNIEnv::*"));
    }
}
