/** Text of a transcript may contain characters that reorder or hide the text beside them. */

// C1 controls and bidirectional controls (embeddings, overrides, isolates), literally or escaped as in JSON; an escaped
// backslash starts no escape.
const DECEPTIVE = /\\\\|[\u0080-\u009f\u202a-\u202e\u2066-\u2069]|\\u(?:00[89][0-9a-f]|202[a-e]|206[6-9])/gi;

/** Replace each of these characters in a JSON text with the replacement character. */
export function withVisibleControls(json: string): string {
  return json.replace(DECEPTIVE, (match) => (match === "\\\\" ? match : "\ufffd"));
}
