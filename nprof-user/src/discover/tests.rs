//! Discovery as a whole, on hosts that tests lay out.

use std::os::unix::fs::MetadataExt;

use super::test_proc::TestProc;
use super::*;
use crate::model::FileId;

const CONTAINER: &str = "8a2b7cdd9a0c3f4e5d6b7a8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f7a8b9c0";

/// The line of `maps` for a file of the test host, as the kernel would print it.
fn maps_line(host: &TestProc, range: &str, file: &str, shown: &str) -> String {
    let found = std::fs::metadata(host.path(file)).unwrap();
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let inode = found.ino();
    format!("{range} r-xp 00000000 {major:02x}:{minor:02x} {inode}    {shown}")
}

/// Check that everything that is known of a JVM is found: main class, user, container, vendor and version.
#[test]
fn describes_a_jvm() {
    let host = TestProc::new();
    host.file("etc/passwd", "root:x:0:0::/:\napp:x:1000:1000::/:\n");
    let release = "IMPLEMENTOR=\"Acme\"\nJAVA_RUNTIME_VERSION=\"17.0.1+2\"\n";
    host.file("proc/42/root/jdk/release", release);
    host.process(Pid(42))
        .uid(1000)
        .args(&["/jdk/bin/java", "-cp", "x", "com.acme.Main"])
        .cgroup(&format!("0::/system.slice/docker-{CONTAINER}.scope\n"))
        .maps_libjvm()
        .add();
    let expected = Jvm {
        pid: Pid(42),
        start_time: StartTime(1042),
        main: "com.acme.Main".to_owned(),
        kind: JvmKind::HotSpot,
        vm_name: "Acme".to_owned(),
        vm_version: "17.0.1+2".to_owned(),
        uid: 1000,
        user: Some("app".to_owned()),
        container: Some(CONTAINER.to_owned()),
    };
    assert_eq!(host.proc().jvm(Pid(42)).unwrap(), expected);
    assert!(host.proc().is_same(&expected));
}

/// Check that a scan lists JVMs by pid, passes over everything else and counts what it cannot read.
#[test]
fn lists_the_jvms_only() {
    let host = TestProc::new();
    host.process(Pid(100)).maps_libjvm().add();
    host.process(Pid(20)).maps_libjvm().add();
    host.process(Pid(3)).comm("sh").exe("/bin/sh").add();
    host.process(Pid(4)).state('Z').maps_libjvm().add();
    // One that has ended between the listing and the look, and files that are no processes.
    std::fs::create_dir(host.path("proc/5")).unwrap();
    host.file("proc/version", "Linux");
    host.process(Pid(2)).comm("kworker").kernel_thread().add();
    host.process(Pid(6)).add();
    for pid in [2, 6] {
        // What everybody but root meets, laid out so that root meets it too: a file that cannot be read.
        std::fs::remove_file(host.path(format!("proc/{pid}/maps"))).unwrap();
        std::fs::create_dir(host.path(format!("proc/{pid}/maps"))).unwrap();
    }
    let scan = host.proc().jvms().unwrap();
    let pids: Vec<u32> = scan.jvms.iter().map(|jvm| jvm.pid.0).collect();
    assert_eq!(pids, [20, 100]);
    assert_eq!(scan.unreadable.len(), 1, "{:?}", scan.unreadable);
}

/// Check that each reason for not being a JVM has its own error.
#[test]
fn says_why_it_is_no_jvm() {
    let host = TestProc::new();
    host.process(Pid(3)).comm("nginx").add();
    host.process(Pid(4)).state('Z').add();
    host.process(Pid(43)).thread_of(Pid(42)).maps_libjvm().add();
    let error = |pid| host.proc().jvm(Pid(pid)).unwrap_err();
    assert!(matches!(error(1), Error::NoSuchProcess { pid: Pid(1) }));
    assert!(matches!(error(3), Error::NotAJvm { pid: Pid(3), comm } if comm == "nginx"));
    assert!(matches!(error(4), Error::Ended { pid: Pid(4), .. }));
    assert!(matches!(error(43), Error::IsThread { tid: Pid(43), tgid: Pid(42) }));
}

/// Check that a pid that was given to another process is not taken for the JVM that had it.
#[test]
fn tells_a_reused_pid() {
    let host = TestProc::new();
    host.process(Pid(42)).maps_libjvm().add();
    let jvm = host.proc().jvm(Pid(42)).unwrap();
    std::fs::remove_dir_all(host.path("proc/42")).unwrap();
    assert!(!host.proc().is_same(&jvm));
    host.process(Pid(42)).start_time(5000).maps_libjvm().add();
    assert!(!host.proc().is_same(&jvm));
}

/// Check that a program that embeds a VM goes by the name of its executable, though that is deleted.
#[test]
fn finds_embedded_vms_by_their_own_name() {
    let host = TestProc::new();
    host.process(Pid(8))
        .comm("jsvc")
        .exe("/usr/bin/jsvc (deleted)")
        .args(&["jsvc.exec", "-cp", "x", "Daemon"])
        .maps_libjvm()
        .add();
    assert_eq!(host.proc().jvm(Pid(8)).unwrap().main, "jsvc");
}

/// Check that an argument file is read where the target sees it, and not through a link out of its root.
#[test]
fn reads_argument_files_inside_the_target_only() {
    let host = TestProc::new();
    host.file("proc/9/root/etc/app/args", "-Xint com.acme.Inside");
    host.file("outside", "com.acme.Outside");
    host.link("proc/9/root/link", host.path("outside"));
    for (file, main) in [("@/etc/app/args", "com.acme.Inside"), ("@/link", "java")] {
        host.process(Pid(9)).args(&["java", file]).maps_libjvm().add();
        assert_eq!(host.proc().jvm(Pid(9)).unwrap().main, main);
    }
}

/// Check that mappings of one file become one library, opened by the exact mapping where that is possible.
#[test]
fn groups_mappings_into_libraries() {
    let host = TestProc::new();
    host.process(Pid(9))
        .maps("7000-8000 r--p 00000000 08:01 5   /app/my lib.so")
        .maps("8000-9000 r-xp 00001000 08:01 5   /app/my lib.so")
        .maps("a000-b000 r-xp 00000000 08:01 6   /app/libgone.so (deleted)")
        .maps("c000-d000 r-xp 00003000 08:01 5   /app/my lib.so")
        .maps("e000-f000 r--p 00000000 08:01 7   /app/data")
        .add();
    host.file("proc/9/map_files/8000-9000", "ELF");
    host.file("proc/9/map_files/a000-b000", "ELF");
    let libraries = host.proc().libraries(Pid(9)).unwrap();
    let names: Vec<String> = libraries.iter().map(Library::name).collect();
    assert_eq!(names, ["my lib.so", "libgone.so"]);
    assert_eq!(libraries[0].mappings.len(), 2);
    assert_eq!((libraries[0].deleted, libraries[1].deleted), (false, true));
    assert_eq!(libraries[1].open_path, host.path("proc/9/map_files/a000-b000"));
    let file = FileId { major: 8, minor: 1, inode: 6 };
    assert_eq!(libraries[1].file, file);
}

/// Check that without `map_files` the path in the target's root is used only for the very file that is mapped.
#[test]
fn opens_through_the_root_only_the_same_file() {
    let host = TestProc::new();
    host.file("proc/9/root/app/a\nb.so", "ELF");
    host.file("proc/9/root/app/other.so", "ELF");
    let same = maps_line(&host, "1000-2000", "proc/9/root/app/a\nb.so", "/app/a\\012b.so");
    host.process(Pid(9)).maps(same).maps("3000-4000 r-xp 00000000 08:01 5   /app/other.so").add();
    let libraries = host.proc().libraries(Pid(9)).unwrap();
    let paths: Vec<_> = libraries.iter().map(|l| l.open_path.clone()).collect();
    let expected = [host.path("proc/9/root/app/a\nb.so"), host.path("proc/9/map_files/3000-4000")];
    assert_eq!(paths, expected);
}

/// Check that in a chroot, where the kernel shows paths from outside, the JDK's files are found all the same.
#[test]
fn finds_files_in_a_chroot() {
    let host = TestProc::new();
    let jail = host.path("jail");
    host.file("jail/jdk/release", "JAVA_VERSION=\"21\"\n");
    host.file("jail/jdk/lib/server/libjvm.so", "ELF");
    host.link("proc/9/root", &jail);
    let shown = jail.join("jdk/lib/server/libjvm.so");
    let file = "jail/jdk/lib/server/libjvm.so";
    let line = maps_line(&host, "1000-2000", file, &shown.to_string_lossy());
    host.process(Pid(9)).maps(line).add();
    assert_eq!(host.proc().jvm(Pid(9)).unwrap().vm_version, "21");
    let libraries = host.proc().libraries(Pid(9)).unwrap();
    let through_root = host.path("proc/9/root/jdk/lib/server/libjvm.so");
    assert_eq!(libraries[0].open_path, through_root);
}

/// Check that a file that is really called `x (deleted)` is not taken for a deleted one.
#[test]
fn believes_the_mark_only_if_the_file_is_gone() {
    let host = TestProc::new();
    host.file("proc/9/root/app/x (deleted)", "ELF");
    let line = maps_line(&host, "1000-2000", "proc/9/root/app/x (deleted)", "/app/x (deleted)");
    host.process(Pid(9)).maps(line).add();
    let libraries = host.proc().libraries(Pid(9)).unwrap();
    assert_eq!(libraries[0].name(), "x (deleted)");
    assert!(!libraries[0].deleted);
}

/// Check that a mapped device is no library: opening one may have effects.
#[test]
fn leaves_out_mapped_devices() {
    let host = TestProc::new();
    host.process(Pid(9)).maps("1000-2000 r-xp 00000000 00:05 4   /dev/null").add();
    host.link("proc/9/map_files/1000-2000", "/dev/null");
    assert_eq!(host.proc().libraries(Pid(9)).unwrap(), []);
}

/// Check that this very process can be read through the real `/proc` and is no JVM.
#[test]
fn reads_the_real_proc() {
    let pid = Pid(std::process::id());
    let proc = Proc::host();
    assert!(matches!(proc.jvm(pid), Err(Error::NotAJvm { .. })));
    assert!(!proc.libraries(pid).unwrap().is_empty());
    assert_eq!(proc.start_time(pid).unwrap(), proc.start_time(pid).unwrap());
}

/// Check that a JVM's age is the time since its start, and that nobody guesses where the host does not tell.
#[test]
fn tells_the_age_of_a_jvm() {
    let host = TestProc::new();
    let ticks = rustix::param::clock_ticks_per_second();
    host.process(Pid(42)).start_time(90 * ticks + ticks / 2).args(&["java", "Main"]).maps_libjvm().add();
    let jvm = host.proc().jvm(Pid(42)).unwrap();
    assert_eq!(host.proc().age(&jvm), None);
    host.file("proc/uptime", "100.50 30.00\n");
    assert_eq!(host.proc().age(&jvm), Some(Duration::from_secs(10)));
}
