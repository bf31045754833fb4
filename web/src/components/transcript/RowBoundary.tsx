import { Component, type ReactNode } from "react";
import { Icon } from "@/components/ui/Icon";
import type { Row } from "@/views/rowTypes";

interface Props {
  row: Row;
  children: ReactNode;
}

/** Shows a line in place of a row that cannot be rendered: a damaged event must not take the page with it. */
export class RowBoundary extends Component<Props, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override componentDidUpdate(before: Props) {
    if (before.row !== this.props.row && this.state.hasFailed) this.setState({ hasFailed: false });
  }

  override render() {
    if (!this.state.hasFailed) return this.props.children;
    return (
      <p className="flex min-h-7 items-center gap-1.5 px-2 pl-[26px] text-12 text-failed-text max-md:pl-2">
        <Icon name="failed" className="size-4" />
        Event {this.props.row.seq} cannot be shown. The downloaded log has it.
      </p>
    );
  }
}
