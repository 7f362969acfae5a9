package targets;

/**
 * The native methods of the shapes, each with its counter in the C code.
 *
 * <p>The numbers are those of natives.h. Methods that share a C function share its counter.
 */
enum Native {
    ADD(0, "targets.Plain", "add", "(II)I"),
    TWICE(1, "targets.Plain", "twice", "(J)J"),
    OVER_INT(2, "targets.Plain", "over", "(I)I"),
    OVER_LONG(3, "targets.Plain", "over", "(J)J"),
    OVER_TEXT(4, "targets.Plain", "over", "(Ljava/lang/String;[I)I"),
    MANY(5, "targets.Plain", "many", "(IJFDBSCZIJFDLjava/lang/Object;I)D"),
    INNER(6, "targets.Outer$Inner", "inner", "(I)I"),
    UNDER_SCORE(7, "targets.Été", "under_score", "()I"),
    UNDER_ONE(8, "targets.Été", "_1", "()I"),
    ACCENT(9, "targets.Été", "compté", "()I"),
    KANJI(10, "targets.Été", "日本", "()I"),
    SUPPLEMENTARY(11, "targets.Été", "𝒳", "()I"),
    HIDDEN(12, "targets.Registered", "hidden", "(I)I"),
    FIRST_ALIAS(13, "targets.Registered", "firstAlias", "()I"),
    SECOND_ALIAS(13, "targets.Registered", "secondAlias", "()I"),
    PUSH_FIRST(14, "targets.Entries", "pushFirst", "()I"),
    MOV_FIRST(15, "targets.Entries", "movFirst", "()I"),
    MOV_THEN_PUSH(16, "targets.Entries", "movThenPush", "()I"),
    MOV_THEN_LOOP(17, "targets.Entries", "movThenLoop", "()I"),
    TEST_THEN_BRANCH(18, "targets.Entries", "testThenBranch", "(Z)I"),
    ENDBR_FIRST(19, "targets.Entries", "endbrFirst", "()I"),
    SUB_THEN_CALL(20, "targets.Entries", "subThenCall", "()I"),
    DESCEND(21, "targets.Nested", "descend", "(I)I"),
    THROWN(22, "targets.Throwing", "thrown", "()V"),
    PENDING(23, "targets.Throwing", "pending", "()V"),
    DIE(24, "targets.Dying", "die", "()V"),
    SLEEP(25, "targets.Timed", "sleep", "(J)V"),
    WORK(26, "targets.Timed", "work", "(J)J"),
    BLOCK(27, "targets.Blocking", "block", "()V"),
    JUMP_OUTER(28, "targets.Jumping", "outer", "()I"),
    JUMP_INNER(29, "targets.Jumping", "inner", "()V"),
    LOCK_FIRST(30, "targets.Entries", "lockFirst", "()I"),
    ONWARD_LEAF(31, "targets.Onward", "leaf", "()I"),
    ONWARD_CALL(32, "targets.Onward", "call", "()I"),
    ONWARD_JUMP(33, "targets.Onward", "jump", "()I"),
    ONWARD_AGAIN(34, "targets.Onward", "again", "(I)I"),
    MADE(35, "targets.Made", "made", "()I");

    final int counter;
    final String owner;
    final String method;
    final String signature;

    Native(int counter, String owner, String method, String signature) {
        this.counter = counter;
        this.owner = owner;
        this.method = method;
        this.signature = signature;
    }
}
