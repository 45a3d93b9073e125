import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import {
  PlatformError,
  newId,
  type JsonObject,
  success,
  isJsonObject,
  pageOf,
} from "../open-api.ts";
import { type WorkWorld, actorOf } from "./world.ts";

// Comments in documents ("Comments" of the Drive documents), and the event that one was added.

export interface SimComment {
  commentId: string;
  by: string;
  solved: boolean;
  /** The passage that it is about; absent: the whole document. */
  quote?: string;
  replies: SimReply[];
}

interface SimReply {
  replyId: string;
  by: string;
  text: string;
  /** Open ids. */
  mentions?: readonly string[];
  at: number;
}

interface Commented {
  documentId: string;
  comments: SimComment[];
}

/** What a person writes beside a document. */
export interface WrittenComment {
  documentId: string;
  by: string;
  text: string;
  mentions?: readonly string[];
  /** The passage; absent: the whole document. */
  quote?: string;
  /** The thread that it continues. */
  commentId?: string;
}

/** Adds a comment, or an answer in a thread; returns it with the payload of its event. */
export function addComment(
  { clock }: WorkWorld,
  { comments }: Commented,
  { documentId, by, text, mentions = [], quote, commentId }: WrittenComment,
): { comment: SimComment; event: JsonObject } {
  const reply: SimReply = { replyId: newId("7"), by, text, mentions, at: clock.now() };
  let comment = comments.find((one) => one.commentId === commentId);
  const isNew = comment === undefined;
  if (comment === undefined) {
    comment = {
      commentId: newId("7"),
      by,
      solved: false,
      ...(quote === undefined ? {} : { quote }),
      replies: [],
    };
    comments.push(comment);
  }
  comment.replies.push(reply);
  const event = {
    notice_meta: {
      file_type: "docx",
      file_token: documentId,
      from_user_id: { open_id: by },
      notice_type: isNew ? "add_comment" : "add_reply",
    },
    comment_id: comment.commentId,
    reply_id: reply.replyId,
    is_mentioned: mentions.length > 0,
  };
  return { comment, event };
}

export function commentRoutes(
  world: WorkWorld,
  documents: ReadonlyMap<string, Commented>,
): ApiRoute[] {
  const documentFor = (call: ApiCallContext): Commented => {
    const document = documents.get(call.params.file_token ?? "");
    if (document === undefined) throw new PlatformError(1069304, "deleted");
    world.require(call, document.documentId, { right: "view", code: 1069303 });
    return document;
  };
  const path = "/open-apis/drive/v1/files/:file_token/comments";
  const knownComment = (call: ApiCallContext): SimComment => {
    const comment = documentFor(call).comments.find(
      ({ commentId }) => commentId === call.params.comment_id,
    );
    if (comment === undefined) throw new PlatformError(1069307, "not found");
    return comment;
  };
  const written = (call: ApiCallContext, content: unknown): SimReply => {
    const text = textIn(content);
    if (text === "") throw new PlatformError(1069302, "invalid param");
    world.record(call, "document.comment", text);
    return { replyId: newId("7"), by: actorOf(call), text, at: world.clock.now() };
  };
  return [
    {
      method: "GET",
      path,
      personScopes: ["docs:document.comment:read"],
      handle: (call) => {
        const solved = call.query.get("is_solved");
        const whole = call.query.get("is_whole");
        const all = documentFor(call).comments.filter(
          (one) =>
            (solved === null || String(one.solved) === solved) &&
            (whole === null || String(one.quote === undefined) === whole),
        );
        const { items, ...page } = pageOf(all, call.query, 100);
        return success({ ...page, items: items.map(commentView) });
      },
    },
    {
      method: "GET",
      path: `${path}/:comment_id`,
      personScopes: ["docs:document.comment:read"],
      handle: (call) => success(commentView(knownComment(call))),
    },
    {
      method: "POST",
      path,
      personScopes: ["docs:document.comment:create"],
      handle: (call) => {
        const document = documentFor(call);
        const replies = isJsonObject(call.body.reply_list) ? call.body.reply_list.replies : [];
        const [reply] = Array.isArray(replies) ? replies.filter(isJsonObject) : [];
        const first = written(call, reply?.content);
        const comment: SimComment = {
          commentId: newId("7"),
          by: first.by,
          solved: false,
          replies: [first],
        };
        document.comments.push(comment);
        return success(commentView(comment));
      },
    },
    {
      method: "POST",
      path: `${path}/:comment_id/replies`,
      personScopes: ["docs:document.comment:create"],
      handle: (call) => {
        const comment = knownComment(call);
        if (comment.quote === undefined) throw new PlatformError(1069302, "invalid param");
        const reply = written(call, call.body.content);
        comment.replies.push(reply);
        return success(replyView(reply));
      },
    },
    {
      method: "PATCH",
      path: `${path}/:comment_id`,
      personScopes: ["docs:document.comment:update"],
      handle: (call) => {
        const comment = knownComment(call);
        comment.solved = call.body.is_solved === true;
        world.record(call, "document.resolve", comment.replies[0]?.text ?? "");
        return success({});
      },
    },
  ];
}

function commentView(comment: SimComment): JsonObject {
  return {
    comment_id: comment.commentId,
    user_id: comment.by,
    is_solved: comment.solved,
    is_whole: comment.quote === undefined,
    quote: comment.quote ?? "",
    create_time: Math.floor((comment.replies[0]?.at ?? 0) / 1_000),
    reply_list: { replies: comment.replies.map(replyView) },
  };
}

function replyView({ replyId, by, text, mentions = [], at }: SimReply): JsonObject {
  return {
    reply_id: replyId,
    user_id: by,
    create_time: Math.floor(at / 1_000),
    content: {
      elements: [
        ...mentions.map((openId) => ({ type: "person", person: { user_id: openId } })),
        { type: "text_run", text_run: { text } },
      ],
    },
  };
}

function textIn(content: unknown): string {
  const elements: unknown[] =
    isJsonObject(content) && Array.isArray(content.elements) ? content.elements : [];
  return elements
    .map((element) =>
      isJsonObject(element) && isJsonObject(element.text_run) ? String(element.text_run.text) : "",
    )
    .join("");
}
