//! What a JVM runs, from its command line: the main class, the jar, the module or the source file.
//!
//! Follows the rules of the `java` launcher (its man page): options first, some of which take the next argument;
//! `@file` stands for the arguments in that file; the first argument that is no option is the main class.

use std::path::Path;

/// Options that take the next argument. Those of the form `--name=value` do not.
const WITH_VALUE: &[&str] = &[
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--limit-modules",
    "--add-exports",
    "--add-opens",
    "--add-reads",
    "--patch-module",
    "--enable-native-access",
    "--source",
    "-d",
    "--describe-module",
];

/// The name to show for a JVM whose arguments are `args` and whose executable is called `exe`. `read_argfile`
/// gives the contents of a file named by an `@file` argument.
///
/// A program that embeds a VM, the tools of the JDK included (`javac`, `jshell`), goes by its own name; so does a
/// launcher whose arguments name nothing to run.
pub(super) fn main_name(args: &[String], exe: &str, read_argfile: impl Fn(&Path) -> Option<String>) -> String {
    let own_name = args.first().and_then(|arg| file_name(arg));
    let is_launcher = exe == "java" || own_name == Some("java");
    let main = is_launcher.then(|| run_by_launcher(args.get(1..).unwrap_or_default(), read_argfile)).flatten();
    main.or_else(|| Some(exe.to_owned()).filter(|exe| !exe.is_empty()))
        .or_else(|| own_name.map(str::to_owned))
        .unwrap_or_default()
}

fn run_by_launcher(args: &[String], read_argfile: impl Fn(&Path) -> Option<String>) -> Option<String> {
    let mut expand = true;
    let mut awaited = Awaited::Option;
    for arg in args {
        let words = match arg.strip_prefix('@').filter(|_| expand) {
            // `@@name` is the argument `@name`.
            Some(name) if name.starts_with('@') => vec![name.to_owned()],
            Some(name) => argfile_words(&read_argfile(Path::new(name))?),
            None => vec![arg.clone()],
        };
        expand &= arg != "--disable-@files";
        for word in &words {
            match awaited.after(word) {
                Awaited::Nothing(main) => return main,
                next => awaited = next,
            }
        }
    }
    None
}

/// The value that `-Dname=value` on the command line gives to a system property: the last one, as in the VM, and empty
/// for a bare `-Dname`. Properties set elsewhere are not seen: in `JDK_JAVA_OPTIONS`, `JAVA_TOOL_OPTIONS` and
/// `_JAVA_OPTIONS`, in argument files (passed over, as if they held options alone), and by the program itself.
pub(super) fn property<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let mut value = None;
    let mut awaited = Awaited::Option;
    // Behind the main class stand the program's own arguments.
    for arg in args.get(1..).unwrap_or_default().iter().filter(|arg| !arg.starts_with('@')) {
        if let (Awaited::Option, Some(property)) = (&awaited, arg.strip_prefix("-D")) {
            let (key, given) = property.split_once('=').unwrap_or((property, ""));
            value = if key == name { Some(given) } else { value };
        }
        match awaited.after(arg) {
            Awaited::Nothing(_) => break,
            next => awaited = next,
        }
    }
    value
}

/// What the launcher takes the next word for.
enum Awaited {
    /// An option or the main class.
    Option,
    /// The value of the option before.
    Value,
    /// The jar to run.
    Jar,
    /// The module to run.
    Module,
    /// Nothing more: this is what runs, where it has a name.
    Nothing(Option<String>),
}

impl Awaited {
    fn after(&self, word: &str) -> Self {
        match self {
            Self::Value => Self::Option,
            Self::Jar => Self::Nothing(file_name(word).map(str::to_owned)),
            Self::Module => Self::Nothing(Some(word.to_owned())),
            Self::Option | Self::Nothing(_) => match word {
                "-jar" => Self::Jar,
                "-m" | "--module" => Self::Module,
                option if WITH_VALUE.contains(&option) => Self::Value,
                option if option.starts_with('-') => {
                    option.strip_prefix("--module=").map_or(Self::Option, |m| Self::Nothing(Some(m.to_owned())))
                }
                source if source.ends_with(".java") => Self::Nothing(file_name(source).map(str::to_owned)),
                // The launcher takes `a/b/C` for `a.b.C`.
                class => Self::Nothing(Some(class.replace('/', "."))),
            },
        }
    }
}

fn file_name(path: &str) -> Option<&str> {
    Path::new(path).file_name()?.to_str()
}

/// The words of an argument file: separated by white space, quoted with `"` or `'`, `#` starts a comment, and a
/// backslash in quotes escapes; before the end of a line it joins the next.
fn argfile_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', Some(_)) => match chars.next() {
                Some('\n') => while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {},
                Some(escaped) => word.get_or_insert_default().push(unescape(escaped)),
                None => {}
            },
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            (c, None) if c.is_ascii_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn unescape(c: char) -> char {
    match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'f' => '\u{c}',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(line: &[&str]) -> String {
        let args: Vec<String> = line.iter().map(|arg| (*arg).to_owned()).collect();
        let exe = file_name(line[0]).unwrap();
        main_name(&args, exe, |path| {
            (path == Path::new("conf/args")).then(|| {
                "# our options\n-cp \"lib dir/*\" -Xmx1g\n--add-opens 'java.base/java.lang=ALL-UNNAMED'\ncom.acme.Main serve"
                    .to_owned()
            })
        })
    }

    /// Check that the main class is found behind options with and without values.
    #[test]
    fn finds_the_main_class() {
        let line = &["/jdk/bin/java", "-Xmx1g", "-cp", "a.jar:b.jar", "com.acme.Main", "-jar", "x.jar"];
        assert_eq!(name_of(line), "com.acme.Main");
        let line = &["java", "--add-modules", "ALL-SYSTEM", "--class-path=x", "-ea", "com/acme/Main"];
        assert_eq!(name_of(line), "com.acme.Main");
    }

    /// Check that a jar goes by its file name, a module by what was asked for, a source by its file name.
    #[test]
    fn finds_jars_modules_and_sources() {
        assert_eq!(name_of(&["java", "-jar", "/srv/app/shop-1.2.jar", "Other"]), "shop-1.2.jar");
        assert_eq!(name_of(&["java", "-p", "mods", "-m", "shop/com.acme.Main"]), "shop/com.acme.Main");
        assert_eq!(name_of(&["java", "--module=shop", "arg"]), "shop");
        assert_eq!(name_of(&["java", "--source", "21", "src/Hello.java"]), "Hello.java");
    }

    /// Check that argument files are expanded up to the main class, not after it, and `@@` stands for `@`.
    #[test]
    fn expands_argument_files() {
        assert_eq!(name_of(&["java", "-Xint", "@conf/args", "more"]), "com.acme.Main");
        assert_eq!(name_of(&["java", "Main", "@missing"]), "Main");
        assert_eq!(name_of(&["java", "@@Odd"]), "@Odd");
        assert_eq!(name_of(&["java", "--disable-@files", "@args"]), "@args");
        assert_eq!(name_of(&["java", "@unreadable", "NotTheMain"]), "java");
    }

    /// Check that the last `-D` in front of the main class counts, and neither an option's value nor what is the
    /// program's.
    #[test]
    fn finds_properties() {
        let line = "java -Dteam=a -cp -Dteam=path -Dbare -Dteam=b=c -Dteams=x @args com.acme.Main -Dteam=program";
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(property(&args, "team"), Some("b=c"));
        assert_eq!(property(&args, "bare"), Some(""));
        assert_eq!(property(&args, "tea"), None);
        assert_eq!(property(&[], "team"), None);
    }

    /// Check that programs that embed a VM and launchers without a main class go by their own name.
    #[test]
    fn falls_back_to_the_executable() {
        assert_eq!(name_of(&["/usr/bin/jsvc", "-cp", "x", "com.acme.Daemon"]), "jsvc");
        assert_eq!(name_of(&["/jdk/bin/javac", "A.java"]), "javac");
        assert_eq!(name_of(&["java", "-version"]), "java");
        assert_eq!(name_of(&["java", "-cp"]), "java");
        assert_eq!(main_name(&[], "jsvc", |_| None), "jsvc");
        assert_eq!(main_name(&[], "", |_| None), "");
    }

    /// Check quoting, escapes, comments and joined lines of argument files.
    #[test]
    fn splits_argument_files_as_the_launcher_does() {
        let text = "-Da=\"x y\" # comment\n 'c:\\\\dir' \"one\\\n   two\" a#b \"\"\n";
        assert_eq!(argfile_words(text), ["-Da=x y", "c:\\dir", "onetwo", "a#b", ""]);
    }
}
