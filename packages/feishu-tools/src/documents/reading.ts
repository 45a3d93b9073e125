import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import {
  type Platform,
  quoted,
  type Remedies,
  type Settings,
  type Target,
  targetOf,
} from "../platform.ts";
import { workTool } from "../work-tool.ts";

/** What the codes of documents and wiki mean. */
export const documentRemedies: Remedies = {
  2889902: "The person may not read this document; its owner can share it.",
  2889906: "The document was deleted.",
  2889914: "There is no such document; check the link.",
  2889925: "The document is too large to be read as a whole.",
  1770002: "There is no such document or block; read the document again.",
  1770032: "The person has no right to do this with the document; its owner can share it.",
  1770021: "The document has changed meanwhile; read it again, then repeat the change.",
  1770001: "The platform does not take these blocks.",
  1770033: "The text is too long; write it in several parts.",
  1770037: "The folder is full.",
  1062507: "The folder is full.",
  1770039: "There is no such folder.",
  1770040: "The person may not create documents in this folder.",
  1771006: "A document cannot be created there; a page of a wiki has its own tool.",
  131005: "There is no such page or space in the wiki.",
  131006: "The person may not see or change this part of the wiki.",
  1069303: "The person may not see or write comments here.",
  1069304: "The document was deleted.",
  1069307: "There is no such comment.",
  1069308: "The document has as many comments as it can hold.",
  1274001: "The platform does not take these words; search for fewer and shorter ones.",
  1274002: "The platform does not take this search.",
};

/** A document to which a link or an id leads. */
export interface DocumentPlace {
  documentId: string;
  /** The link that was given, or one that works for the person. */
  link: string;
}

const docxHost = "https://feishu.cn";

/** Follows a link of a document or of a page in a wiki; a bare id is that of a document. */
export async function documentAt(platform: Platform, text: string): Promise<DocumentPlace> {
  const target = targetOf(text);
  if (target.kind === "docx" || target.kind === "unknown") {
    return { documentId: target.id, link: linkOf("docx", target.id, target) };
  }
  if (target.kind !== "wiki") {
    throw new Error(`This is a link to ${target.kind}, not to a document.`);
  }
  const node = await wikiNodeAt(platform, target.id);
  if (node.type !== "docx") {
    throw new Error(`This page of the wiki holds ${node.type}, not a document.`);
  }
  return { documentId: node.object, link: linkOf("wiki", target.id, target) };
}

export interface WikiPlace {
  spaceId: string;
  nodeToken: string;
  object: string;
  type: string;
  title: string;
}

export async function wikiNodeAt(platform: Platform, token: string): Promise<WikiPlace> {
  const { node } = await platform.read((client, as) =>
    client.wiki.v2.space.getNode({ params: { token } }, as),
  );
  return {
    spaceId: node?.space_id ?? "",
    nodeToken: node?.node_token ?? token,
    object: node?.obj_token ?? "",
    type: node?.obj_type ?? "nothing",
    title: node?.title ?? "",
  };
}

/** The host of the company is in links only: without one the platform leads on from its own. */
export function linkOf(
  kind: "docx" | "wiki" | "base",
  id: string,
  { origin = docxHost }: Pick<Target, "origin">,
): string {
  return `${origin}/${kind}/${id}`;
}

/** The platform marks what it has found. */
function withoutMarks(text = ""): string {
  return text.replaceAll(/<\/?h[b]?>/g, "");
}

const maxFound = 20;
/** Five a second ("Get document content"). */
export const contentPace = { of: "contents of documents", everyMs: 200 };
const maxReadCharacters = 20_000;

function findTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "find_documents",
    description:
      "Searches the documents and wiki pages that the person may see, by words of their titles and texts. Gives titles, owners and links, which other tools take.",
    title: { zh: "找文档", en: "Find documents" },
    summary: { zh: "搜索文档：{query}", en: "Search documents: {query}" },
    input: {
      query: Type.String({
        minLength: 1,
        maxLength: 50,
        description: "Few words that are likely in the title.",
      }),
      titles_only: Type.Optional(
        Type.Boolean({ description: "Search titles alone. Default false." }),
      ),
    },
    effect: "pure",
    scopes: ["search:docs:read"],
    reach: "reads",
    run: async ({ query, titles_only: only_title = false }, platform) => {
      const { res_units: units = [], total = 0 } = await platform.read((client, as) =>
        client.search.v2.docWiki.search(
          {
            data: {
              query,
              doc_filter: { only_title },
              wiki_filter: { only_title },
              page_size: maxFound,
            },
          },
          as,
        ),
      );
      if (units.length === 0) {
        return "No document that the person may see was found. Try other words.";
      }
      const lines = units.map(({ title_highlighted, summary_highlighted, result_meta }) => {
        const { url = "", owner_name: owner = "", update_time: at } = result_meta ?? {};
        const changed =
          at === undefined
            ? ""
            : `, changed ${new Date(Number(at) * 1_000).toISOString().slice(0, 10)}`;
        return `- ${withoutMarks(title_highlighted)} (${owner}${changed}): ${url}\n  ${withoutMarks(summary_highlighted)}`;
      });
      const more =
        Number(total) > units.length
          ? `\n${Number(total) - units.length} more; narrow the search.`
          : "";
      return quoted("search", lines.join("\n") + more);
    },
  });
}

function readTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "read_document",
    description:
      "Reads a document or a wiki page as Markdown. For a long one gives a part and the headings of the rest: ask for another part with from_heading.",
    title: { zh: "读文档", en: "Read a document" },
    summary: { zh: "读文档 {document}", en: "Read the document {document}" },
    input: {
      document: Type.String({
        minLength: 1,
        maxLength: 500,
        description: "Link to the document or page, or its id.",
      }),
      from_heading: Type.Optional(
        Type.String({
          maxLength: 300,
          description: "Begin with this heading, as a former answer has named it.",
        }),
      ),
    },
    effect: "pure",
    scopes: ["docs:document.content:read", "wiki:node:read"],
    reach: "reads",
    run: async ({ document, from_heading: fromHeading }, platform) => {
      const { documentId, link } = await documentAt(platform, document);
      const { content = "" } = await platform.read(
        (client, as) =>
          client.docs.v1.content.get(
            { params: { doc_token: documentId, doc_type: "docx", content_type: "markdown" } },
            as,
          ),
        contentPace,
      );
      return quoted(link, partOf(content, fromHeading));
    },
  });
}

/** A part of Markdown of bounded length that ends before a heading where it can, and what was left out. */
function partOf(markdown: string, fromHeading?: string): string {
  const headings = [...markdown.matchAll(/^#{1,9} +(.*)$/gm)].map(({ index, 1: text = "" }) => ({
    index,
    text,
  }));
  const wanted = fromHeading?.trim().replace(/^#+ */, "");
  const start =
    wanted === undefined ? 0 : headings.find(({ text }) => text.trim() === wanted)?.index;
  if (start === undefined) {
    throw new Error(
      `There is no heading ${JSON.stringify(fromHeading)}. It has: ${headingsOf(headings)}`,
    );
  }
  const rest = markdown.slice(start);
  if (rest.length <= maxReadCharacters) return rest;
  const last = headings.findLast(
    ({ index }) => index > start && index <= start + maxReadCharacters,
  )?.index;
  const end = last ?? start + maxReadCharacters;
  const left = headingsOf(headings.filter(({ index }) => index >= end));
  return `${markdown.slice(start, end)}\n\n[${markdown.length - end} characters are left out. Headings of the rest: ${left}]`;
}

function headingsOf(headings: readonly { text: string }[]): string {
  return headings.length === 0
    ? "none"
    : headings
        .map(({ text }) => JSON.stringify(text))
        .slice(0, 50)
        .join(", ");
}

/** Finds and reads documents. */
export const readingTools = [findTool, readTool];
