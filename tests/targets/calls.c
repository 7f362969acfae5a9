/*
 * A program without a JVM whose functions are called a known number of times, for tests of the BPF programs alone.
 * It says "ready", then obeys lines "COMMAND NUMBER" and answers each with "done". The functions begin with a push, so
 * that a probe can sit on their first byte, and are named as natives are, so that nprof finds them.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#define FUNCTION(name, body)                                                                \
    __asm__(".globl Java_Calls_" #name "\n.type Java_Calls_" #name ", @function\n.p2align 4\n" \
            "Java_Calls_" #name ":\n" body "\n.size Java_Calls_" #name ", . - Java_Calls_" #name)
#define LEAVE "pop %rbp\nret"

/* Returns at once. */
FUNCTION(leaf, "push %rbp\n" LEAVE);
/* Calls leaf. */
FUNCTION(parent, "push %rbp\ncall Java_Calls_leaf\n" LEAVE);
/* Returns at once. A probe can sit behind the mov. */
FUNCTION(moved, "mov %rdi, %rax\npush %rbp\n" LEAVE);
/* Calls a function with an argument, as a stub does that has counted the call: with its mark, made of the function's name. */
FUNCTION(stub, "push %rbp\nlea -8(%rsp), %r10\nxor %rdx, %r10\nmov %rdi, %rax\nmov %rsi, %rdi\ncall *%rax\n" LEAVE);
/* Calls itself as often as its argument says. */
FUNCTION(nest, "push %rbp\ndec %rdi\njle 1f\ncall Java_Calls_nest\n1:" LEAVE);
/* Calls back into C, which does not always return. */
FUNCTION(outer, "push %rbp\ncall *%rdi\n" LEAVE);
/* Jumps to leaf as its last act. */
FUNCTION(tail, "push %rbp\npop %rbp\njmp Java_Calls_leaf");

void leaf(void) __asm__("Java_Calls_leaf");
void moved(void) __asm__("Java_Calls_moved");
void stub(void *function, long argument, unsigned long name) __asm__("Java_Calls_stub");
void parent(void) __asm__("Java_Calls_parent");
void nest(long depth) __asm__("Java_Calls_nest");
void tail(void) __asm__("Java_Calls_tail");
void outer(void (*inside)(void)) __asm__("Java_Calls_outer");

static jmp_buf back;
static pthread_barrier_t all_inside;

static void jump(void) {
    longjmp(back, 1);
}

static void end_thread(void) {
    pthread_exit(NULL);
}

static void meet(void) {
    pthread_barrier_wait(&all_inside);
    leaf();
}

static void *dying(void *unused) {
    outer(end_thread);
    return unused;
}

static void *meeting(void *unused) {
    outer(meet);
    return unused;
}

static void *calling(void *number) {
    for (long i = 0; i < (long) number; i++) {
        parent();
    }
    return NULL;
}

/* Runs threads that are all alive at once, and waits for them. */
static void threads(long count, void *(*run)(void *), void *argument) {
    pthread_t *started = calloc(count, sizeof *started);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    for (long i = 0; i < count; i++) {
        if (pthread_create(&started[i], &attributes, run, argument) != 0) {
            abort();
        }
    }
    for (long i = 0; i < count; i++) {
        pthread_join(started[i], NULL);
    }
    free(started);
}

/* As in nprof-common/src/switch.rs. */
static unsigned long name(unsigned long entry) {
    unsigned long mixed = (entry ^ (entry >> 31)) * 0x9e3779b97f4a7c15;
    return (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9;
}

static void calling_marked(void *function, long argument, long number) {
    for (long i = 0; i < number; i++) {
        stub(function, argument, name((unsigned long) function));
    }
}

static void obey(char command, long number) {
    switch (command) {
    case 'l':
        calling((void *) number);
        break;
    case 's':
        calling_marked(leaf, 0, number);
        break;
    case 'S':
        calling_marked(parent, 0, number);
        break;
    case 'T':
        calling_marked(tail, 0, number);
        break;
    case 'N':
        calling_marked(nest, number, 1);
        break;
    case 'M':
        calling_marked(moved, 0, number);
        break;
    case 'v':
        for (long i = 0; i < number; i++) {
            moved();
        }
        break;
    case 'n':
        nest(number);
        break;
    case 't':
        for (long i = 0; i < number; i++) {
            tail();
        }
        break;
    case 'j':
        for (volatile long i = 0; i < number; i++) {
            if (setjmp(back) == 0) {
                outer(jump);
            }
        }
        break;
    case 'd':
        threads(number, dying, NULL);
        break;
    case 'm':
        pthread_barrier_init(&all_inside, NULL, number);
        threads(number, meeting, NULL);
        pthread_barrier_destroy(&all_inside);
        break;
    case 'p':
        threads(64, calling, (void *) number);
        break;
    }
}

int main(void) {
    char line[64];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char command = 0;
        long number = 0;
        if (sscanf(line, "%c %ld", &command, &number) == 2) {
            obey(command, number);
        }
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
