/** Tables in card markdown: a row followed by a row of dashes, outside of code. A table lasts to the next empty line. */
export function tableCount(markdown: string): number {
  if (!markdown.includes("|")) return 0;
  let tables = 0;
  let inTable = false;
  let previous = "";
  for (const line of linesOutsideFences(markdown)) {
    if (line.trim() === "") inTable = false;
    else if (!inTable && previous.includes("|") && isDelimiterRow(line)) {
      inTable = true;
      tables += 1;
    }
    previous = line;
  }
  return tables;
}

function isDelimiterRow(line: string): boolean {
  return line.includes("|") && line.includes("-") && /^[\s|:-]+$/.test(line);
}

/** Open ids in `<at id=ou_…>` and `<person id='ou_…'>` tags outside of code; `all` names nobody. */
export function mentionedIds(markdown: string): string[] {
  if (!markdown.includes("<")) return [];
  const tags = outsideCode(markdown).matchAll(/<(?:at|person)\s+ids?\s*=\s*["']?([^"'>\s]+)/g);
  return [...tags].flatMap(([, ids = ""]) => ids.split(",")).filter((id) => id !== "" && id !== "all");
}

/** Image keys of `![…](…)` outside of code. */
export function imageKeys(markdown: string): string[] {
  if (!markdown.includes("![")) return [];
  return [...outsideCode(markdown).matchAll(/!\[[^\]\n]*\]\(([^)\s]+)/g)].map(([, key = ""]) => key);
}

function outsideCode(markdown: string): string {
  return linesOutsideFences(markdown)
    .join("\n")
    .replaceAll(/(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)/g, "");
}

/**
 * The lines outside of code fences; code counts as empty lines. As in CommonMark, a fence that is still open reaches
 * to the end, nothing follows the marks that close one, and no backtick follows the backticks that open one.
 */
function linesOutsideFences(markdown: string): string[] {
  let fence: string | undefined;
  return markdown.split("\n").map((line) => {
    const [, marks = "", rest = ""] = /^\s*(`{3,}|~{3,})(.*)$/.exec(line) ?? [];
    if (fence !== undefined) {
      if (marks.startsWith(fence) && rest.trim() === "") fence = undefined;
      return "";
    }
    if (marks === "" || (marks.startsWith("`") && rest.includes("`"))) return line;
    fence = marks;
    return "";
  });
}
