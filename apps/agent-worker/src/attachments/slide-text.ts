import type { Draft } from "./draft.ts";
import {
  attributeOf,
  relationshipsOf,
  walkXml,
  type XmlListener,
  type ZipArchive,
} from "./office-package.ts";

/** Paths of the slides in the order in which they are shown. */
async function slidePaths(archive: ZipArchive, path: string): Promise<string[]> {
  const slides = new Map<string, string>();
  for (const { id, type, path: slide } of await relationshipsOf(archive, path)) {
    if (type === "slide") slides.set(id, slide);
  }
  const order: string[] = [];
  await walkXml(archive.read(path), {
    open(name, attributes) {
      const slide = name === "sldId" ? slides.get(attributeOf(attributes, "id") ?? "") : undefined;
      if (slide !== undefined) order.push(slide);
    },
  });
  return order;
}

class SlideReader implements XmlListener {
  readonly #draft: Draft;
  #inText = false;
  #fields = 0;
  #cells = 0;
  #copies = 0;

  constructor(draft: Draft) {
    this.#draft = draft;
  }

  open(name: string): void {
    if (name === "t") this.#inText = true;
    else if (name === "fld") this.#fields += 1;
    else if (name === "Fallback") this.#copies += 1;
    else if (name === "tc") this.#cells += 1;
    else if (name === "br") this.#add(this.#cells > 0 ? " " : "\n");
  }

  text(text: string): void {
    // Fields are slide numbers and dates.
    if (this.#inText && this.#fields === 0) this.#add(text);
  }

  close(name: string): void {
    if (name === "t") this.#inText = false;
    else if (name === "fld") this.#fields -= 1;
    else if (name === "Fallback") this.#copies -= 1;
    else if (name === "tc") this.#closeCell();
    else if (name === "p") this.#add(this.#cells > 0 ? " " : "\n");
    else if (name === "tr") this.#add("\n");
  }

  #closeCell(): void {
    this.#cells -= 1;
    this.#add("| ");
  }

  #add(text: string): void {
    if (this.#copies === 0) this.#draft.add(text);
  }
}

/** Text of a presentation, slide by slide with its notes. */
export async function readSlides(archive: ZipArchive, path: string, draft: Draft): Promise<void> {
  const slides = await slidePaths(archive, path);
  draft.pages = slides.length;
  for (const [index, slide] of slides.entries()) {
    draft.add(`\n[Slide ${index + 1}]\n`);
    await walkXml(archive.read(slide), new SlideReader(draft));
    const notes = (await relationshipsOf(archive, slide)).find(({ type }) => type === "notesSlide");
    if (notes === undefined) continue;
    draft.add("\n[Notes]\n");
    await walkXml(archive.read(notes.path), new SlideReader(draft));
  }
}
