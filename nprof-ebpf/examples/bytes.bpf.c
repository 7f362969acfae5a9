/* Counts bytes by method: what `nprof trace --on-return` or `--on-entry` runs. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* By method. nprof makes it as large as it has to be, and shows it. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, 1);
} nprof_values SEC(".maps");

static int add(void *ctx, int bytes) {
    __u32 index = bpf_get_attach_cookie(ctx);
    __u64 *sum = bpf_map_lookup_elem(&nprof_values, &index);
    if (sum && bytes > 0)
        __sync_fetch_and_add(sum, bytes);
    return 0;
}

/* What a method returns: `int read(...)`. */
SEC("uretprobe") int returned(struct pt_regs *ctx) { return add(ctx, PT_REGS_RC(ctx)); }

/* What a method is given first: `static void write(int length)`. Before it are JNI's environment and the class. */
SEC("uprobe") int given(struct pt_regs *ctx) { return add(ctx, PT_REGS_PARM3(ctx)); }

char LICENSE[] SEC("license") = "GPL";
