//! Finds the paths of one file that lead to other stages.

use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// What a path to a stage begins with: the root of its own crate, or another crate's name.
const CRATE_WORDS: [&str; 2] = ["crate", "nprof_hotspot"];

/// A path from the crate's root, as far as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) line: usize,
    pub(crate) target: Target,
    /// Whether a test does so.
    pub(crate) in_tests: bool,
}

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Into this module of the crate's root, and there to this part of it, if one is named.
    Stage(String, Option<String>),
    /// To the root itself: renamed or imported as a whole.
    Root,
}

/// Finds the paths of one file.
pub(crate) struct Scanner {
    /// The module that the tokens at hand are in, from the root: `["hotspot", "reader"]`.
    pub(crate) module: Vec<String>,
    pub(crate) found: Vec<Reach>,
}

impl Scanner {
    /// Takes in the paths of these tokens.
    pub(crate) fn scan(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = self.step(&tokens, at);
        }
    }

    /// Reads what begins at `at` and gives where the next thing begins.
    fn step(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        match &tokens[at] {
            TokenTree::Group(group) => self.scan(group.stream()),
            TokenTree::Ident(word) if word == "mod" => {
                if let (Some(name), Some(TokenTree::Group(body))) = (ident(tokens, at + 1), tokens.get(at + 2)) {
                    self.module.push(name);
                    self.scan(body.stream());
                    self.module.pop();
                    return at + 3;
                }
            }
            TokenTree::Ident(word) if word == "super" || word == "self" || is_crate(&word.to_string()) => {
                return self.path(tokens, at);
            }
            _ => {}
        }
        at + 1
    }

    /// Follows a path from its first word on.
    fn path(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let mut module = self.module.clone();
        let mut at = start;
        loop {
            match ident(tokens, at).as_deref() {
                Some(word) if is_crate(word) => module.clear(),
                Some("super") => {
                    module.pop();
                }
                // `self` stands for the module at the start of a path and within a tree of imports.
                Some("self") => {}
                _ => break,
            }
            if !is_colons(tokens, at + 1) {
                return self.bare(tokens, start, at, &module);
            }
            at += 3;
        }
        self.follow(tokens, at, &module);
        at
    }

    /// `crate`, `super` or `self` that no `::` follows.
    fn bare(&mut self, tokens: &[TokenTree], start: usize, at: usize, module: &[String]) -> usize {
        let renamed = ident(tokens, at + 1).as_deref() == Some("as");
        // `pub(crate)`, `pub(super)` and the value `self` are no paths.
        if module.is_empty() && (renamed || at > start) {
            self.note(tokens, at, Target::Root);
        }
        at + 1
    }

    /// The words after `crate::` or `super::`, when they have led to `module`.
    fn follow(&mut self, tokens: &[TokenTree], at: usize, module: &[String]) {
        if let [stage, part, ..] = module {
            self.note(tokens, at, Target::Stage(stage.clone(), Some(part.clone())));
            return;
        }
        match tokens.get(at) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in branches(&inner) {
                    self.follow(&inner, branch, module);
                }
            }
            Some(TokenTree::Ident(word)) if word != "self" => match module.first() {
                Some(stage) => self.note(tokens, at, Target::Stage(stage.clone(), Some(word.to_string()))),
                None if is_colons(tokens, at + 1) => self.follow(tokens, at + 3, &[word.to_string()]),
                None => self.note(tokens, at, Target::Stage(word.to_string(), None)),
            },
            _ if !module.is_empty() => self.note(tokens, at, Target::Stage(module[0].clone(), None)),
            Some(_) => self.note(tokens, at, Target::Root),
            None => {}
        }
    }

    fn note(&mut self, tokens: &[TokenTree], at: usize, target: Target) {
        let line = tokens.get(at).map_or(0, |t| t.span().start().line);
        let in_tests = self.module.iter().any(|part| part.contains("test"));
        self.found.push(Reach { line, target, in_tests });
    }
}

fn is_crate(word: &str) -> bool {
    CRATE_WORDS.contains(&word)
}

/// Where the branches of a tree of imports begin.
fn branches(tokens: &[TokenTree]) -> Vec<usize> {
    let commas = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| matches!(token, TokenTree::Punct(p) if p.as_char() == ','))
        .map(|(at, _)| at + 1);
    std::iter::once(0).chain(commas).filter(|at| *at < tokens.len()).collect()
}

pub(crate) fn ident(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(word)) => Some(word.to_string()),
        _ => None,
    }
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |at| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(at) && colon(at + 1)
}

/// The module that a file below `src` is: `hotspot/reader.rs` is `["hotspot", "reader"]`.
pub(crate) fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        file.with_extension("").components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}
