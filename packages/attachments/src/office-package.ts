import { attributeOf, walkXml } from "./xml-walk.ts";
import type { ZipArchive } from "./zip-archive.ts";

/** Kinds of Office Open XML documents. */
export type OfficeKind = "word" | "workbook" | "presentation";

export interface MainPart {
  kind: OfficeKind;
  path: string;
}

/** What another part is to this one. `type` is the last word of its URI: `styles`, `slide`. */
export interface Relationship {
  id: string;
  type: string;
  path: string;
}

// Templates, macro-enabled files and slide shows have types of their own that end alike.
const mainTypes: [RegExp, OfficeKind][] = [
  [/(?:wordprocessingml|ms-word)\..*\.main\+xml$/i, "word"],
  [/(?:spreadsheetml|ms-excel)\..*\.main\+xml$/i, "workbook"],
  [/(?:presentationml|ms-powerpoint)\..*\.main\+xml$/i, "presentation"],
];

/** Finds the document itself by the content types of the package; undefined when there is none. */
export async function mainPartOf(archive: ZipArchive): Promise<MainPart | undefined> {
  let main: MainPart | undefined;
  await walkXml(archive.read("[Content_Types].xml"), {
    open(name, attributes) {
      if (name !== "Override" || main !== undefined) return;
      const type = attributeOf(attributes, "ContentType") ?? "";
      const kind = mainTypes.find(([pattern]) => pattern.test(type))?.[1];
      const path = (attributeOf(attributes, "PartName") ?? "").replace(/^\//, "");
      if (kind !== undefined && archive.has(path)) main = { kind, path };
    },
  });
  return main;
}

function resolvePart(from: string, target: string): string {
  if (target.startsWith("/")) return target.slice(1);
  const steps = from.split("/").slice(0, -1);
  for (const step of target.split("/")) {
    if (step === "..") steps.pop();
    else if (step !== ".") steps.push(step);
  }
  return steps.join("/");
}

/** The parts inside the package that a part refers to. */
export async function relationshipsOf(archive: ZipArchive, path: string): Promise<Relationship[]> {
  const slash = path.lastIndexOf("/") + 1;
  const found: Relationship[] = [];
  await walkXml(archive.read(`${path.slice(0, slash)}_rels/${path.slice(slash)}.rels`), {
    open(name, attributes) {
      if (name !== "Relationship" || attributeOf(attributes, "TargetMode") === "External") return;
      const type = attributeOf(attributes, "Type") ?? "";
      found.push({
        id: attributeOf(attributes, "Id") ?? "",
        type: type.slice(type.lastIndexOf("/") + 1),
        path: resolvePart(path, attributeOf(attributes, "Target") ?? ""),
      });
    },
  });
  return found;
}
