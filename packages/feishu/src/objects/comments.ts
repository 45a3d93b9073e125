import { parserOf } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import type { ApiCaller, CallOptions } from "../transport/api-call.ts";

// Comments in documents: reading one with its thread, and answering there ("Comments" of the Drive documents). A comment
// is plain text. The platform knows no key for a new one, so a sender looks whether its text stands there already.

/** A thread of comments in a file. */
interface CommentPlace {
  fileType: string;
  fileToken: string;
  commentId: string;
}

export interface Comment {
  /** It is about the whole document. */
  isWhole: boolean;
  /** The passage that it is about; empty where it is about the whole document. */
  quote: string;
  /** Oldest first: the first one is the comment itself. */
  replies: CommentReply[];
}

interface CommentReply {
  replyId: string;
  authorId: string;
  text: string;
  /** Open ids of the people and bots that it mentions. */
  mentions: string[];
  /** Epoch ms, whole seconds. */
  createdAtMs: number;
}

/** Comments about a whole document among which an earlier answer is looked for: newest come first. */
const pageSize = 100;

const Element = Type.Object({
  type: Type.String(),
  text_run: Type.Optional(Type.Object({ text: Type.Optional(Type.String()) })),
  docs_link: Type.Optional(Type.Object({ url: Type.Optional(Type.String()) })),
  person: Type.Optional(Type.Object({ user_id: Type.Optional(Type.String()) })),
});
const Reply = Type.Object({
  reply_id: Type.Optional(Type.String()),
  user_id: Type.Optional(Type.String()),
  create_time: Type.Optional(Type.Integer()),
  content: Type.Optional(
    Type.Object({ elements: Type.Optional(Type.Array(Element, { maxItems: 1_000 })) }),
  ),
});
const CommentItem = Type.Object({
  is_whole: Type.Optional(Type.Boolean()),
  quote: Type.Optional(Type.String()),
  reply_list: Type.Optional(
    Type.Object({ replies: Type.Optional(Type.Array(Reply, { maxItems: 1_000 })) }),
  ),
});
const parseComment = parserOf(Type.Object({ data: CommentItem }));
const parseComments = parserOf(
  Type.Object({
    data: Type.Object({ items: Type.Optional(Type.Array(CommentItem, { maxItems: 1_000 })) }),
  }),
);
const parseDone = parserOf(Type.Object({}));

/** Calls about comments, as the bot. Every method rejects with a FeishuError only. */
export class CommentsApi {
  readonly #caller: ApiCaller;

  constructor(caller: ApiCaller) {
    this.#caller = caller;
  }

  async fetch(place: CommentPlace, options?: CallOptions): Promise<Comment> {
    const url = `${commentsOf(place)}/${encodeURIComponent(place.commentId)}`;
    const params = { file_type: place.fileType, user_id_type: "open_id" };
    const { data } = await this.#caller.call(
      {
        api: "drive.fileComment.get",
        run: (client, sdkOptions) => client.request({ method: "GET", url, params }, sdkOptions),
        parse: parseComment,
      },
      options,
    );
    return commentOf(data);
  }

  /** Comments about the whole document. */
  async fetchWhole(place: CommentPlace, options?: CallOptions): Promise<Comment[]> {
    const params = {
      file_type: place.fileType,
      user_id_type: "open_id",
      is_whole: true,
      page_size: pageSize,
    };
    const url = commentsOf(place);
    const { data } = await this.#caller.call(
      {
        api: "drive.fileComment.list",
        run: (client, sdkOptions) => client.request({ method: "GET", url, params }, sdkOptions),
        parse: parseComments,
      },
      options,
    );
    return (data.items ?? []).map(commentOf);
  }

  /** Answers in the thread. Tried once: the platform has no key that would make a repeat harmless. */
  async reply(place: CommentPlace, text: string, options?: CallOptions): Promise<void> {
    const url = `${commentsOf(place)}/${encodeURIComponent(place.commentId)}/replies`;
    const { fileType } = place;
    const data = contentOf(text);
    await this.#write({ api: "drive.fileCommentReply.create", url, fileType, data }, options);
  }

  /** Adds a comment about the whole document. Tried once. */
  async add(place: CommentPlace, text: string, options?: CallOptions): Promise<void> {
    const data = { reply_list: { replies: [contentOf(text)] } };
    const { fileType } = place;
    const url = commentsOf(place);
    await this.#write({ api: "drive.fileComment.create", url, fileType, data }, options);
  }

  async #write(
    { api, url, fileType, data }: { api: string; url: string; fileType: string; data: object },
    options?: CallOptions,
  ): Promise<void> {
    const params = { file_type: fileType, user_id_type: "open_id" };
    await this.#caller.call(
      {
        api,
        run: (client, sdkOptions) =>
          client.request({ method: "POST", url, params, data }, sdkOptions),
        parse: parseDone,
        once: true,
      },
      options,
    );
  }
}

function commentsOf({ fileToken }: CommentPlace): string {
  return `/open-apis/drive/v1/files/${encodeURIComponent(fileToken)}/comments`;
}

function contentOf(text: string): object {
  return { content: { elements: [{ type: "text_run", text_run: { text } }] } };
}

function commentOf({
  is_whole: isWhole = false,
  quote = "",
  reply_list: list,
}: Static<typeof CommentItem>): Comment {
  const replies = (list?.replies ?? []).map((reply) => {
    const elements = reply.content?.elements ?? [];
    return {
      replyId: reply.reply_id ?? "",
      authorId: reply.user_id ?? "",
      text: elements
        .map(({ text_run: run, docs_link: link }) => run?.text ?? link?.url ?? "")
        .join(""),
      mentions: elements.flatMap(({ person }) => person?.user_id ?? []),
      createdAtMs: (reply.create_time ?? 0) * 1_000,
    };
  });
  return { isWhole, quote, replies };
}
