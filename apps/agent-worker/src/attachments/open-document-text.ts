import { type Draft, passwordNeeded } from "./draft.ts";
import {
  attributeOf,
  walkXml,
  type XmlAttributes,
  type XmlListener,
  type ZipArchive,
} from "./office-package.ts";

const maxSpaces = 100;
// Comments, tracked deletions and the pieces of master pages.
const skipped = new Set(["annotation", "tracked-changes", "forms", "settings"]);

class ContentReader implements XmlListener {
  readonly #draft: Draft;
  #paragraphs = 0;
  #cells = 0;
  #skip = 0;

  constructor(draft: Draft) {
    this.#draft = draft;
  }

  open(name: string, attributes: XmlAttributes): void {
    if (skipped.has(name)) this.#skip += 1;
    if (name === "p" || name === "h") this.#paragraphs += 1;
    if (name === "h") this.#add("# ");
    else if (name === "list-item") this.#add("- ");
    else if (name === "tab") this.#add("\t");
    else if (name === "line-break") this.#add(this.#cells > 0 ? " " : "\n");
    else if (name === "s") {
      this.#add(" ".repeat(Math.min(Number(attributeOf(attributes, "c")) || 1, maxSpaces)));
    } else if (name === "table-cell") this.#cells += 1;
    else this.#openPage(name, attributes);
  }

  #openPage(name: string, attributes: XmlAttributes): void {
    if (name === "table" && this.#cells === 0 && attributes["table:name"] !== undefined) {
      this.#add(`\n[Table: ${attributes["table:name"]}]\n`);
    } else if (name === "page") {
      this.#draft.pages = (this.#draft.pages ?? 0) + 1;
      this.#add(`\n[Slide ${this.#draft.pages}]\n`);
    } else if (name === "notes") {
      this.#add("\n[Notes]\n");
    }
  }

  text(text: string): void {
    if (this.#paragraphs > 0) this.#add(text.replaceAll(/\s+/g, " "));
  }

  close(name: string): void {
    if (name === "p" || name === "h") {
      this.#paragraphs -= 1;
      this.#add(this.#cells > 0 ? " " : "\n");
    } else if (name === "table-cell") {
      this.#cells -= 1;
      this.#add("\t");
    } else if (name === "table-row") {
      this.#add("\n");
    }
    if (skipped.has(name)) this.#skip -= 1;
  }

  #add(text: string): void {
    if (this.#skip === 0) this.#draft.add(text);
  }
}

async function isEncrypted(archive: ZipArchive): Promise<boolean> {
  let encrypted = false;
  await walkXml(archive.read("META-INF/manifest.xml"), {
    open(name) {
      encrypted ||= name === "encryption-data";
    },
  });
  return encrypted;
}

/** Text of an OpenDocument text, sheet or presentation. */
export async function readOpenDocument(archive: ZipArchive, draft: Draft): Promise<void> {
  if (await isEncrypted(archive)) throw passwordNeeded();
  await walkXml(archive.read("content.xml"), new ContentReader(draft));
}
