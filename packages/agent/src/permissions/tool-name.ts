/** Whether a name of a tool fits a pattern in which `*` stands for any characters. Linear. */
export function matchesName(pattern: string, name: string): boolean {
  const [head = "", ...parts] = pattern.split("*");
  const tail = parts.pop();
  if (tail === undefined) return name === head;
  if (!name.startsWith(head)) return false;
  let from = head.length;
  for (const part of parts) {
    const at = name.indexOf(part, from);
    if (at === -1) return false;
    from = at + part.length;
  }
  return name.length - tail.length >= from && name.endsWith(tail);
}
