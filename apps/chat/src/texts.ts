/** What the terminal client says, in one language. */
export interface Texts {
  started: string;
  you: string;
  assistant: string;
  goodbye: string;
  cancelled: string;
  calling(tool: string): string;
  finished(tool: string, preview: string): string;
  failed(tool: string, preview: string): string;
  error(message: string): string;
  unreachable(address: string): string;
  silent(seconds: number): string;
  tokenRefused: string;
  refused(status: number, reason: string): string;
  cutOff: string;
}

const zh: Texts = {
  started: "流式助手已启动 (输入 'quit' 退出)",
  you: "你: ",
  assistant: "助手: ",
  goodbye: "再见!",
  cancelled: "[已取消]",
  calling: (tool) => `[正在调用工具: ${tool}]`,
  finished: (tool, preview) => `[工具 ${tool} 执行完成]: ${preview}`,
  failed: (tool, preview) => `[工具 ${tool} 执行失败]: ${preview}`,
  error: (message) => `[错误]: ${message}`,
  unreachable: (address) => `无法连接 ${address}，请先运行 npm start，或用 --url 指定地址。`,
  silent: (seconds) => `服务器 ${seconds} 秒没有任何应答。`,
  tokenRefused: "服务器要求令牌：请把 API_TOKEN 设为与服务器相同的值。",
  refused: (status, reason) => `服务器拒绝了请求（${status}）：${reason}`,
  cutOff: "连接中断，回答不完整。",
};

const en: Texts = {
  started: "Streaming assistant started (enter 'quit' to leave)",
  you: "You: ",
  assistant: "Assistant: ",
  goodbye: "Goodbye!",
  cancelled: "[Cancelled]",
  calling: (tool) => `[Calling tool: ${tool}]`,
  finished: (tool, preview) => `[Tool ${tool} finished]: ${preview}`,
  failed: (tool, preview) => `[Tool ${tool} failed]: ${preview}`,
  error: (message) => `[Error]: ${message}`,
  unreachable: (address) => `Cannot reach ${address}: run npm start first, or name the address with --url.`,
  silent: (seconds) => `The server has been silent for ${seconds} s.`,
  tokenRefused: "The server asks for a token: set API_TOKEN to the server's value.",
  refused: (status, reason) => `The server refused the request (${status}): ${reason}`,
  cutOff: "The connection broke, the answer is incomplete.",
};

export const languages = ["zh", "en"] as const;
export type Language = (typeof languages)[number];

/** The texts of the client; `zh` is its default language. */
export const texts: Readonly<Record<Language, Texts>> = { zh, en };
