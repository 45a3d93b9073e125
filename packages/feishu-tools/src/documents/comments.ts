import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { changeOnce, earlier, makeOnce, onlyOne } from "../exactly-once.ts";
import { type Platform, quoted, type Settings } from "../platform.ts";
import { documentAt, documentRemedies } from "./reading.ts";
import { documentLink } from "./writing.ts";
import { workTool } from "../work-tool.ts";

// Comments beside documents. Those on a passage are threads that take answers; those on the whole document take none
// ("Add a reply").

const commentInput = {
  comment: Type.String({
    minLength: 1,
    maxLength: 100,
    description: "Id of the comment, as read_document_comments gives it.",
  }),
  comment_text: Type.String({
    minLength: 1,
    maxLength: 10_000,
    description: "The whole first text of that comment, so that the person sees which one it is.",
  }),
};

function commentsTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "read_document_comments",
    description:
      "Lists the open comments of a document with their ids and answers, and the passage that each is about.",
    title: { zh: "看文档评论", en: "Read the comments of a document" },
    summary: { zh: "看文档 {document} 的评论", en: "Read the comments of {document}" },
    input: { document: documentLink },
    effect: "pure",
    scopes: ["docs:document.comment:read", "wiki:node:read"],
    reach: "reads",
    run: async ({ document }, platform) => {
      const place = await documentAt(platform, document);
      const comments = await commentsOf(platform, place.documentId);
      const lines = comments.map(
        ({ id, quote, replies }) =>
          `- comment ${id} on ${quote === undefined ? "the whole document" : JSON.stringify(quote)}: ${replies.map(({ by, text }) => `${by}: ${text}`).join(" / ")}`,
      );
      return lines.length === 0
        ? "There are no open comments."
        : quoted(place.link, lines.join("\n"));
    },
  });
}

interface Comment {
  id: string;
  /** The passage that it is about; undefined: the whole document. */
  quote: string | undefined;
  atMs: number;
  replies: { id: string; by: string; text: string; atMs: number }[];
}

async function commentsOf(platform: Platform, documentId: string): Promise<Comment[]> {
  const { items = [] } = await platform.read((client, as) =>
    client.drive.v1.fileComment.list(
      {
        path: { file_token: documentId },
        params: { file_type: "docx", is_solved: false, page_size: 100 },
      },
      as,
    ),
  );
  return items.map(({ comment_id = "", is_whole, quote = "", reply_list, create_time: at }) => ({
    id: comment_id,
    atMs: Number(at) * 1_000,
    quote: is_whole === true ? undefined : quote,
    replies: (reply_list?.replies ?? []).map((reply) => ({
      id: reply.reply_id ?? "",
      by: reply.user_id ?? "",
      atMs: Number(reply.create_time) * 1_000,
      text: reply.content.elements.map(({ text_run }) => text_run?.text ?? "").join(""),
    })),
  }));
}

function commentTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "comment_on_document",
    description:
      "Adds a comment to a whole document, in the name of the person. All its readers see it. To answer a comment on a passage use reply_to_comment.",
    title: { zh: "评论文档", en: "Comment on a document" },
    summary: {
      zh: "在文档 {document} 评论：{text}",
      en: "Comment on the document {document}: {text}",
    },
    input: { document: documentLink, text: Type.String({ minLength: 1, maxLength: 5_000 }) },
    effect: "once",
    looks: true,
    scopes: ["docs:document.comment:create", "docs:document.comment:read", "wiki:node:read"],
    reach: "shared",
    run: async ({ document, text }, platform) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const there = earlier(platform, await commentsOf(platform, documentId), ({ atMs }) => atMs);
      const before = new Set(there.map(({ id }) => id));
      const id = await makeOnce(platform, {
        run: (client, as) =>
          client.drive.v1.fileComment.create(
            {
              path: { file_token: documentId },
              params: { file_type: "docx" },
              data: {
                reply_list: {
                  replies: [{ content: { elements: [{ type: "text_run", text_run: { text } }] } }],
                },
              },
            },
            as,
          ),
        result: ({ comment_id = "" }) => comment_id,
        find: async () =>
          onlyOne(
            (await commentsOf(platform, documentId)).filter(
              (one) =>
                !before.has(one.id) &&
                one.replies[0]?.text === text &&
                one.replies[0].by === platform.openId,
            ),
          )?.id,
        open: "whether the comment was written",
      });
      return `Comment ${id} is on ${place}`;
    },
  });
}

/** The open comment that the person saw on the card. */
async function commentAt(
  platform: Platform,
  documentId: string,
  { comment: id, comment_text: text }: { comment: string; comment_text: string },
): Promise<Comment> {
  const found = (await commentsOf(platform, documentId)).find((one) => one.id === id);
  if (found === undefined) {
    throw new Error("The document has no such open comment; read its comments again.");
  }
  const says = found.replies[0]?.text ?? "";
  if (says.trim() !== text.trim()) {
    throw new Error(`That comment says something else: ${JSON.stringify(says.slice(0, 300))}`);
  }
  return found;
}

function replyTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "reply_to_comment",
    description:
      "Answers a comment on a passage of a document, in its thread and in the name of the person. All readers of the document see it. A comment on the whole document takes no answers.",
    title: { zh: "回复文档评论", en: "Reply to a comment in a document" },
    summary: {
      zh: "在文档 {document} 回复评论「{comment_text}」：{text}",
      en: "Reply to the comment “{comment_text}” in {document}: {text}",
    },
    input: {
      document: documentLink,
      ...commentInput,
      text: Type.String({ minLength: 1, maxLength: 5_000 }),
    },
    effect: "once",
    looks: true,
    scopes: ["docs:document.comment:create", "docs:document.comment:read", "wiki:node:read"],
    reach: "shared",
    run: async ({ document, text, ...named }, platform) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const comment = await commentAt(platform, documentId, named);
      if (comment.quote === undefined) {
        throw new Error(
          "This comment is on the whole document and takes no answers: use comment_on_document.",
        );
      }
      const there = earlier(platform, comment.replies, ({ atMs }) => atMs);
      const before = new Set(there.map(({ id }) => id));
      await makeOnce(platform, {
        run: (client, as) =>
          client.drive.v1.fileCommentReply.create(
            {
              path: { file_token: documentId, comment_id: comment.id },
              params: { file_type: "docx" },
              data: { content: { elements: [{ type: "text_run", text_run: { text } }] } },
            },
            as,
          ),
        result: ({ reply_id = "" }) => reply_id,
        find: async () =>
          onlyOne(
            (await commentsOf(platform, documentId))
              .filter(({ id }) => id === comment.id)
              .flatMap(({ replies }) => replies)
              .filter(
                (one) => !before.has(one.id) && one.text === text && one.by === platform.openId,
              ),
          )?.id,
        open: "whether the reply was written",
      });
      return `The reply is in the comment ${comment.id} of ${place}`;
    },
  });
}

function resolveTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "resolve_comment",
    description: "Marks a comment in a document as resolved. People can open it again there.",
    title: { zh: "解决文档评论", en: "Resolve a comment in a document" },
    summary: {
      zh: "把文档 {document} 的评论「{comment_text}」标为已解决",
      en: "Resolve the comment “{comment_text}” in {document}",
    },
    input: { document: documentLink, ...commentInput },
    effect: "idempotent",
    scopes: ["docs:document.comment:update", "docs:document.comment:read", "wiki:node:read"],
    reach: "shared",
    run: async ({ document, ...named }, platform) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const { id } = await commentAt(platform, documentId, named);
      await changeOnce(platform, {
        windowMs: settings.keyWindowMs, // what is resolved stays resolved
        run: (client, as) =>
          client.drive.v1.fileComment.patch(
            {
              path: { file_token: documentId, comment_id: id },
              params: { file_type: "docx" },
              data: { is_solved: true },
            },
            as,
          ),
        isDone: async () => !(await commentsOf(platform, documentId)).some((one) => one.id === id),
        open: "whether the comment was resolved",
      });
      return `Resolved the comment ${id} of ${place}`;
    },
  });
}

/** Reads, writes, answers and resolves comments in documents. */
export const commentTools = [commentsTool, commentTool, replyTool, resolveTool];
