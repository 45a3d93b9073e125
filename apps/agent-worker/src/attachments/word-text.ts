import type { Draft } from "./draft.ts";
import {
  attributeOf,
  relationshipsOf,
  walkXml,
  type XmlAttributes,
  type XmlListener,
  type ZipArchive,
} from "./office-package.ts";

// Text that was moved away, and the second copy of a shape for older versions of Word.
const skipped = new Set(["moveFrom", "Fallback"]);

/** Ids of paragraph styles that are headings, with their level. They differ by language of Word. */
async function headingStyles(archive: ZipArchive, path: string): Promise<Map<string, number>> {
  const levels = new Map<string, number>();
  let style = "";
  await walkXml(archive.read(path), {
    open(name, attributes) {
      if (name === "style") style = attributeOf(attributes, "styleId") ?? "";
      if (name !== "name") return;
      const level = /^heading ([1-6])$/i.exec(attributeOf(attributes, "val") ?? "")?.[1];
      if (level !== undefined) levels.set(style, Number(level));
    },
  });
  return levels;
}

class WordReader implements XmlListener {
  readonly #draft: Draft;
  readonly #headings: ReadonlyMap<string, number>;
  #skip = 0;
  #cells = 0;
  #properties = 0;
  #inText = false;
  #prefix = "";

  constructor(draft: Draft, headings: ReadonlyMap<string, number>) {
    this.#draft = draft;
    this.#headings = headings;
  }

  open(name: string, attributes: XmlAttributes): void {
    if (skipped.has(name)) this.#skip += 1;
    else if (name === "tc") this.#cells += 1;
    else if (name === "pPr") this.#properties += 1;
    else if (name === "t") this.#inText = true;
    else if (this.#properties > 0) this.#openProperty(name, attributes);
    else this.#openCharacter(name);
  }

  #openProperty(name: string, attributes: XmlAttributes): void {
    const level =
      name === "pStyle" ? this.#headings.get(attributeOf(attributes, "val") ?? "") : undefined;
    if (level !== undefined) this.#prefix = `${"#".repeat(level)} `;
    else if (name === "numPr" && this.#prefix === "") this.#prefix = "- ";
  }

  #openCharacter(name: string): void {
    if (name === "p") this.#prefix = "";
    else if (name === "tab") this.#add("\t");
    else if (name === "br" || name === "cr") this.#add(this.#cells > 0 ? " " : "\n");
    else if (name === "noBreakHyphen") this.#add("-");
  }

  text(text: string): void {
    if (this.#inText) this.#add(text);
  }

  close(name: string): void {
    if (skipped.has(name)) this.#skip -= 1;
    else if (name === "t") this.#inText = false;
    else if (name === "pPr") this.#properties -= 1;
    else if (name === "p") this.#add(this.#cells > 0 ? " " : "\n");
    else if (name === "tc") this.#closeCell();
    else if (name === "tr") this.#add(this.#cells > 0 ? "; " : "\n");
  }

  #closeCell(): void {
    this.#cells -= 1;
    this.#add("| ");
  }

  #add(text: string): void {
    if (this.#skip > 0) return;
    const visible = this.#prefix !== "" && text.trim() !== "";
    this.#draft.add(visible ? this.#prefix + text : text);
    if (visible) this.#prefix = "";
  }
}

/** Text of a Word document, then of its notes: headings as `#`, list items as `-`, table cells by `|`. */
export async function readWord(archive: ZipArchive, path: string, draft: Draft): Promise<void> {
  const relationships = await relationshipsOf(archive, path);
  const styles = relationships.find(({ type }) => type === "styles");
  const headings = styles ? await headingStyles(archive, styles.path) : new Map<string, number>();
  await walkXml(archive.read(path), new WordReader(draft, headings));
  for (const { type, path: notes } of relationships) {
    if (type !== "footnotes" && type !== "endnotes") continue;
    draft.add("\n");
    await walkXml(archive.read(notes), new WordReader(draft, headings));
  }
}
