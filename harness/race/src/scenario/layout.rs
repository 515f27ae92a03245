//! The usual form of a scenario file: keys in their order, lists indented by two, flow maps without inner blanks, no
//! blanks at line ends. Comments and the line breaks of the author stay.
use super::schema::KEYS;
use super::yaml::Node;
use crate::mistake::Mistake;

/// The text in the usual form. It says the same: what cannot be laid out without a change of meaning is a mistake.
pub fn laid_out(text: &str) -> Result<String, Mistake> {
    let before = Node::read(text)?;
    let mut blocks = blocks(text);
    let place = |name: &str| KEYS.iter().position(|k| k.name == name).unwrap_or(KEYS.len());
    // Stable: what is before the first key stays there.
    blocks.sort_by_key(|b| b.key.map(place));
    let mut out = String::new();
    for block in &blocks {
        let indented = block.lines.iter().any(|l| l.starts_with("- "));
        let key = block.lines.iter().position(|l| is_key(l)).unwrap_or(0);
        for (n, line) in block.lines.iter().enumerate() {
            let further = indented && n > key && !line.is_empty();
            let line = if further { format!("  {line}") } else { (*line).to_owned() };
            out += tidied(&line).trim_end();
            out.push('\n');
        }
    }
    let out = without_gaps(&out);
    match Node::read(&out) {
        Ok(after) if after.json() == before.json() => Ok(out),
        _ => Err(Mistake::new(before.at, "this file cannot be laid out without a change of what it says")
            .help("write its values on one line each, or in `{}` and `[]`")),
    }
}

/// A key with its lines, the comments above it among them.
struct Block<'t> {
    key: Option<&'t str>,
    lines: Vec<&'t str>,
}

fn is_key(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '"' || c == '\'')
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = vec![Block { key: None, lines: Vec::new() }];
    // Comments at the margin belong to what comes next, except those that end the file.
    let mut waiting: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') || line.trim().is_empty() {
            match blocks.len() {
                // The head of the file, up to its first blank line or key.
                1 if line.starts_with("# yaml-language-server") => blocks[0].lines.push(line),
                _ => waiting.push(line),
            }
        } else if is_key(line) {
            let mut lines = std::mem::take(&mut waiting);
            lines.push(line);
            blocks.push(Block { key: line.split(':').next(), lines });
        } else {
            let block = blocks.last_mut().expect("there is the head");
            block.lines.append(&mut waiting);
            block.lines.push(line);
        }
    }
    let key = blocks.last().and_then(|b| b.key);
    blocks.push(Block { key: key.map(|_| "\u{10ffff}"), lines: waiting });
    blocks
}

/// One blank line at most, none at either end.
fn without_gaps(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if !(line.is_empty() && (out.is_empty() || out.ends_with("\n\n"))) {
            out += line;
            out.push('\n');
        }
    }
    format!("{}\n", out.trim_end_matches('\n'))
}

/// The line with its flow collections as `{a: b, c: [d, e]}`.
fn tidied(line: &str) -> String {
    let chars: Vec<char> = line.chars().collect();
    let (mut out, mut depth, mut quote) = (String::new(), 0usize, None);
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        let opens = matches!(c, '{' | '[')
            && (depth > 0 || out.trim().is_empty() || out.ends_with(": ") || out.ends_with("- "));
        match quote {
            Some(end) => {
                out.push(c);
                if c == end {
                    quote = None;
                }
            }
            None if depth == 0 && c == '#' && (out.is_empty() || out.ends_with(' ')) => {
                out.extend(&chars[i..]);
                return out;
            }
            None if matches!(c, '"' | '\'') && (out.is_empty() || out.ends_with([' ', '{', '[', ','])) => {
                quote = Some(c);
                out.push(c);
            }
            None if opens => {
                depth += 1;
                out.push(c);
                while chars.get(i + 1) == Some(&' ') {
                    i += 1;
                }
            }
            None if depth > 0 && matches!(c, '}' | ']') => {
                depth -= 1;
                out.truncate(out.trim_end().len().max(out.len() - out.trim_start().len()));
                out.push(c);
            }
            None if depth > 0 && c == ',' => {
                out.truncate(out.trim_end().len());
                out.push(',');
                while chars.get(i + 1) == Some(&' ') {
                    i += 1;
                }
                if i + 1 < chars.len() {
                    out.push(' ');
                }
            }
            None => out.push(c),
        }
        i += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_laid_out_in_the_usual_order_and_form() {
        let text = "# yaml-language-server: $schema=x\n\n\n# why\nsummary: A {b }   \ncheck: [ a ,b]\n# the name\nscenario: x\nsteps:\n- { run: 1s }   # soon\n- hold: {watch: a/b,  as: \"x , y\"}\n\n\n# the end\n";
        let expected = "# yaml-language-server: $schema=x\n# the name\nscenario: x\n\n# why\nsummary: A {b }\nsteps:\n  - {run: 1s}   # soon\n  - hold: {watch: a/b, as: \"x , y\"}\ncheck: [a, b]\n\n# the end\n";
        let out = laid_out(text).expect("yaml");
        assert_eq!(out, expected);
        assert_eq!(laid_out(&out).expect("yaml"), out, "once is enough");
    }

    #[test]
    fn what_is_no_yaml_is_a_mistake() {
        assert!(laid_out("a: [").is_err());
    }
}
