/** What ends a command of a shell or begins another one inside it. */
const metacharacters = /[;|&<>$()`\r\n]/;
const separators = new RegExp(metacharacters.source, "g");

/** Whether a text is one command, with nothing that a shell would take for another one. */
export function isOneCommand(text: string): boolean {
  return !metacharacters.test(text);
}

/** Where `part` is found from `from` on with nothing but one command's text in between; -1 if nowhere. */
function reached(subject: string, part: string, from: number): number {
  const at = subject.indexOf(part, from);
  return at !== -1 && isOneCommand(subject.slice(from, at)) ? at : -1;
}

/**
 * Whether all of `subject` fits `pattern`. `*` stands for any text, also none, that stays within one
 * command; everything else stands for itself. The first place of each part is the best one: a later
 * one has more text before it that must stay within the command. Linear in the length of the subject.
 */
export function matchesSubject(pattern: string, subject: string): boolean {
  const [head = "", ...parts] = pattern.split("*");
  const tail = parts.pop();
  if (tail === undefined) return subject === head;
  if (!subject.startsWith(head)) return false;
  let from = head.length;
  for (const part of parts) {
    const at = reached(subject, part, from);
    if (at === -1) return false;
    from = at + part.length;
  }
  const end = subject.length - tail.length;
  return end >= from && subject.endsWith(tail) && isOneCommand(subject.slice(from, end));
}

/** Whether the subject, or one of the commands in it, fits the pattern: for entries that hold calls back. */
export function touchesSubject(pattern: string, subject: string): boolean {
  if (matchesSubject(pattern, subject)) return true;
  return subject.split(separators).some((command) => matchesSubject(pattern, command.trim()));
}
