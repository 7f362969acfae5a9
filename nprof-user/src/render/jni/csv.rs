//! The rows of `jni` as CSV: for each native method the JNI functions that it calls, those that call Java by Java method, so that the sum
//! over all rows is that of all calls. Times are whole nanoseconds; what is not told is an empty field. The losses have no place in the
//! rows: whoever writes CSV tells them elsewhere.

use std::borrow::Cow;
use std::io::{self, Write};

use nprof_common::JniCallee;

use super::made::Made;
use super::{callbacks, json};
use crate::model::{JniFamily, JniSnapshot, JniSum, JniUse, Method, jni as functions};
use crate::render::csv::quoted;

const HEADER: &str = "class,method,signature,function,family,java_class,java_method,java_signature,calls,timed,self_ns,on_cpu_ns,\
                      max_ns,error_ns,effective,redundant,redundant_ns,method_state,function_state";

/// Writes the header and the rows, the dearest first. Rows without a class are those of calls that no traced native method has made.
///
/// # Errors
/// What writing to `w` gives.
pub fn csv(jni: &JniSnapshot, w: &mut impl Write) -> io::Result<()> {
    writeln!(w, "{HEADER}")?;
    let mut rows = rows(jni);
    rows.sort_by(|a, b| {
        (b.sum.on_cpu_ns, b.sum.calls).cmp(&(a.sum.on_cpu_ns, a.sum.calls)).then_with(|| a.names().cmp(&b.names()))
    });
    for row in rows {
        let fields = row.fields();
        let fields: Vec<Cow<'_, str>> = fields.iter().map(|field| quoted(field)).collect();
        writeln!(w, "{}", fields.join(","))?;
    }
    Ok(())
}

/// Calls of one function by one native method, if it calls Java those of one Java method.
struct Row<'a> {
    method: Option<&'a Method>,
    function: &'a str,
    java: Option<&'a Method>,
    sum: JniSum,
    /// Whether it is told which have done something.
    tells_effective: bool,
    /// Of look-ups, whether it is told which are redundant.
    tells_redundant: bool,
    /// How closely the native method and the function are measured at the end.
    states: [&'static str; 2],
}

fn rows(jni: &JniSnapshot) -> Vec<Row<'_>> {
    let made = Made::by_method(jni);
    let row = |place: usize| jni.snapshot.methods.get(place);
    let state = |place: Option<usize>| place.and_then(row).map_or("", |row| row.traced.tracing.as_str());
    let row_of = |used: &JniUse| Row {
        method: used.method.and_then(|place| Some(&row(place)?.methods.first()?.method)),
        states: [state(used.method), state(Some(used.function))],
        function: jni.function(used.function),
        java: None,
        sum: JniSum::from(used),
        tells_effective: !jni.is_by_stubs,
        tells_redundant: json::tells_redundant(jni, used),
    };
    let calls_java = |used: &JniUse| functions::callee(jni.function(used.function)) != JniCallee::Nothing;
    let is_split = |used: &&JniUse| calls_java(used) && !jni.is_by_stubs;
    let (split, whole): (Vec<&JniUse>, Vec<&JniUse>) = jni.uses.iter().partition(is_split);
    let of_java = |used: &JniUse| {
        let callbacks = made.get(&used.method).into_iter().flat_map(|made| callbacks::of_use(made, used.function));
        let groups = callbacks::by_java(callbacks).into_iter();
        groups.map(|group| Row { java: group.java, sum: group.sum, ..row_of(used) }).collect::<Vec<_>>()
    };
    let mut rows: Vec<Row<'_>> = whole.into_iter().map(row_of).collect();
    rows.extend(split.into_iter().flat_map(of_java));
    rows
}

impl Row<'_> {
    fn names(&self) -> [&str; 7] {
        let [class, method, signature] = parts(self.method);
        let [java_class, java_method, java_signature] = parts(self.java);
        [class, method, signature, self.function, java_class, java_method, java_signature]
    }

    fn fields(&self) -> Vec<String> {
        let JniSum { calls, timed, self_ns, on_cpu_ns, max_ns, error_ns, effective, redundant, redundant_ns, .. } =
            self.sum;
        let [class, method, signature, function, java @ ..] = self.names();
        let family = JniFamily::of(function).as_str();
        let names = [class, method, signature, function, family].into_iter().chain(java).map(str::to_owned);
        let numbers = [calls, timed, self_ns, on_cpu_ns, max_ns, error_ns].map(|number| number.to_string());
        let effective = if self.tells_effective { effective.to_string() } else { String::new() };
        let told = |number: u64| if self.tells_redundant { number.to_string() } else { String::new() };
        let states = self.states.map(str::to_owned);
        names.chain(numbers).chain([effective]).chain([redundant, redundant_ns].map(told)).chain(states).collect()
    }
}

fn parts(method: Option<&Method>) -> [&str; 3] {
    method.map_or([""; 3], |method| [&*method.class, &*method.name, &*method.signature])
}
